# What packages have beside the components of SpecdInstall.cmake, and how `cpack` makes them:
#   specd_bundle   for the archive: the libraries of others, the texts of their licences, the service's files
#   specd_debian   for the Debian package: the service, its user and flags, Python's way to the package
#   specd_wheel    for the wheel: libspecd, the daemon, the detokenizer, specctl, specd-http, with the libraries of others
# Each is installed only when it is asked for.
#
# A library of others is not linked into ours: Debian's archives of Abseil have no code for shared
# libraries, and libfmt, libsimdjson and libspdlog have no archives. What is brought along lies in
# LIBDIR/specd, out of the way of the system's.

set(packaging ${PROJECT_SOURCE_DIR}/tools/packaging)
# The machine's own: glibc belongs to the dynamic linker, and libstdc++ may be there only once.
set(libraries_of_system "^(ld-linux.*|lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util|gcc_s|stdc[+][+]))[.]so")

# specd_bring_libraries(COMPONENT LIBDIR PROGRAMS LICENCES): what was installed finds in LIBDIR/specd
# the libraries of the set COMPONENT. The RUNPATH of PROGRAMS and of libspecd becomes an RPATH, which
# also holds for the libraries of libraries.
function(specd_bring_libraries component libdir programs licences)
  install(RUNTIME_DEPENDENCY_SET ${component}
    PRE_EXCLUDE_REGEXES ${libraries_of_system} POST_EXCLUDE_REGEXES "/libcuda[.]so"
    LIBRARY DESTINATION ${libdir}/specd COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    file(GLOB files \"\${prefix}/${programs}/*\")
    execute_process(
      COMMAND python3 -B \"${PROJECT_SOURCE_DIR}/tools/gpu_check/rpath.py\"
        \${files} \"\${prefix}/${libdir}/libspecd.so.${PROJECT_VERSION}\"
      COMMAND_ERROR_IS_FATAL ANY)
    execute_process(
      COMMAND python3 -B \"${packaging}/licences.py\"
        \"\${prefix}/${libdir}/specd\" \"\${prefix}/${licences}\"
      COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

install(TARGETS specd RUNTIME_DEPENDENCY_SET specd_wheel
  LIBRARY DESTINATION lib NAMELINK_SKIP COMPONENT specd_wheel EXCLUDE_FROM_ALL)
set(in_wheel specd_daemon specd_detok)
foreach(program specctl specd_http)
  if(TARGET ${program})
    list(APPEND in_wheel ${program})
  endif()
endforeach()
install(TARGETS ${in_wheel} RUNTIME_DEPENDENCY_SET specd_wheel
  RUNTIME DESTINATION bin COMPONENT specd_wheel EXCLUDE_FROM_ALL)
specd_bring_libraries(specd_wheel lib bin licences)

# The programs of specd_runtime once more, for their libraries.
set(bundled specd_daemon specd_detok)
foreach(program specctl specd_http specd_toy_engine specd_toy_client specd_replay)
  if(TARGET ${program})
    list(APPEND bundled ${program})
  endif()
endforeach()
install(TARGETS ${bundled} RUNTIME_DEPENDENCY_SET specd_bundle
  RUNTIME COMPONENT specd_bundle EXCLUDE_FROM_ALL)
install(TARGETS specd RUNTIME_DEPENDENCY_SET specd_bundle
  LIBRARY NAMELINK_SKIP COMPONENT specd_bundle EXCLUDE_FROM_ALL)
specd_bring_libraries(specd_bundle ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_BINDIR}
  ${CMAKE_INSTALL_DOCDIR}/licences)
install(FILES ${packaging}/specd.service ${packaging}/specd.socket ${packaging}/specd-http.service
  ${packaging}/specd.sysusers ${packaging}/specd.flags ${packaging}/specd-http.flags
  DESTINATION ${CMAKE_INSTALL_DATADIR}/specd COMPONENT specd_bundle EXCLUDE_FROM_ALL)

install(FILES ${packaging}/specd.service ${packaging}/specd.socket ${packaging}/specd-http.service DESTINATION lib/systemd/system
  COMPONENT specd_debian EXCLUDE_FROM_ALL)
install(FILES ${packaging}/specd.sysusers DESTINATION lib/sysusers.d RENAME specd.conf
  COMPONENT specd_debian EXCLUDE_FROM_ALL)
install(FILES ${packaging}/specd.flags ${packaging}/specd-http.flags DESTINATION /etc/specd
  COMPONENT specd_debian EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright
  COMPONENT specd_debian EXCLUDE_FROM_ALL)
install(CODE "
  set(modules \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/python3/dist-packages\")
  file(MAKE_DIRECTORY \"\${modules}\")
  file(RELATIVE_PATH package /lib/python3/dist-packages /${CMAKE_INSTALL_LIBDIR}/specd/python/specd)
  file(CREATE_LINK \"\${package}\" \"\${modules}/specd\" SYMBOLIC)"
  COMPONENT specd_debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR External DEB)
set(CPACK_PACKAGE_NAME specd)
set(CPACK_PACKAGE_VENDOR "The authors of specd")
set(CPACK_PACKAGE_CONTACT "The authors of specd")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "specd runs as a daemon beside an engine, or inside the engine's process. The engine shares its logits
rows. specd returns the confirmed tokens and publishes their text.")
set(CPACK_PACKAGE_FILE_NAME specd-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
# An archive that is unpacked by root belongs to root, and no folder is open to others.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_EXTERNAL_ENABLE_STAGING ON)
set(CPACK_EXTERNAL_PACKAGE_SCRIPT ${PROJECT_SOURCE_DIR}/tools/cmake/SpecdPackArchive.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE none)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/tools/cmake/SpecdPackDebian.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For packages of others that link the library, which has no package of its own.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, python3-numpy")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3-zmq, python3-msgpack")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${packaging}/postinst ${packaging}/prerm ${packaging}/postrm
  ${packaging}/conffiles ${packaging}/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_SPECD_BUILD ${PROJECT_BINARY_DIR})  # for the file below
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/tools/cmake/SpecdPackageParts.cmake)
include(CPack)
