# What `cmake --install` puts where, in components:
#   specd_runtime      bin/ and the shared library
#   specd_benchmarks   specd-bench, which the packages leave out: it has all kernels once more
#   specd_development  the C headers, and what find_package(specd) and pkg-config read
#   specd_python       the Python package, in LIBDIR/specd/python
#   specd_gpu_check    only when it is asked for: the bundle of tools/gpu_check
# tools/cmake/SpecdPackages.cmake has the further components of packages.
# Everything finds everything else by relative path, so the tree may be moved as a whole.

include(CMakePackageConfigHelpers)

set(specd_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/specd)

# A tool may be left out of the build (SPECD_BUILD_TOOLS=OFF); what is installed under another name
# than its target's is named here.
set(specd_programs specd_daemon specd_detok specctl specd_http specd_toy_engine specd_toy_client
    specd_bench specd_replay)
set(specd_http_name specd-http)
set(specd_toy_engine_name specd-toy-engine)
set(specd_toy_client_name specd-toy-client)
set(specd_bench_name specd-bench)
set(specd_replay_name specd-replay)
foreach(program IN LISTS specd_programs)
  if(TARGET ${program})
    if(DEFINED ${program}_name)
      set_target_properties(${program} PROPERTIES OUTPUT_NAME ${${program}_name})
    endif()
    # LIBDIR/specd has the libraries of others, in packages that bring them along.
    set(libraries "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${libraries};${libraries}/specd")
    set(component specd_runtime)
    if(program STREQUAL "specd_bench")
      set(component specd_benchmarks)
    endif()
    install(TARGETS ${program} RUNTIME COMPONENT ${component})
  endif()
endforeach()
set_target_properties(specd PROPERTIES INSTALL_RPATH "$ORIGIN/specd")

if(TARGET specctl)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/specctl/specctl.bash RENAME specctl
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT specd_runtime)
endif()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT specd_runtime)
install(TARGETS specd EXPORT specdTargets
  LIBRARY COMPONENT specd_runtime NAMELINK_COMPONENT specd_development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/ipc/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT specd_development FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/ipc/python/specd
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/specd/python
  COMPONENT specd_python FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
  PATTERN "__pycache__" EXCLUDE)
install(EXPORT specdTargets NAMESPACE specd:: DESTINATION ${specd_package_dir}
  COMPONENT specd_development)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/tools/cmake/specdConfig.cmake.in ${PROJECT_BINARY_DIR}/specdConfig.cmake
  INSTALL_DESTINATION ${specd_package_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/specdConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/specdConfig.cmake ${PROJECT_BINARY_DIR}/specdConfigVersion.cmake
  DESTINATION ${specd_package_dir} COMPONENT specd_development)

file(RELATIVE_PATH specd_prefix_of_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" specd_prefix_of_pc "${specd_prefix_of_pc}")
configure_file(${PROJECT_SOURCE_DIR}/tools/packaging/specd.pc.in ${PROJECT_BINARY_DIR}/specd.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/specd.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT specd_development)

# The bundle has all libraries in it except glibc's, which belong to the machine's dynamic linker.
# tools/gpu_check/make turns the RUNPATH of its programs into an RPATH, which also finds the
# libraries of libraries. Not by the linker: what specd_runtime installs is of the same link.
if(SPECD_HAVE_CUDA AND TARGET specd_kernels_test AND TARGET specd_gpu_facts AND TARGET specd_bench)
  set(glibc "^(ld-linux.*|lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util))[.]so")
  foreach(program specd_kernels_test specd_gpu_facts specd_gpu_attach specd_gpu_daemon specd_daemon
          specd_bench)
    set_property(TARGET ${program} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS ${program} RUNTIME_DEPENDENCY_SET specd_gpu_check_libraries
      RUNTIME DESTINATION bin COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
  endforeach()
  # What engines of the daemon's checks link, and peers.py asks specd through: the library, and the
  # package beside it, which finds it there.
  set_property(TARGET specd APPEND PROPERTY INSTALL_RPATH "$ORIGIN")
  install(TARGETS specd RUNTIME_DEPENDENCY_SET specd_gpu_check_libraries
    LIBRARY DESTINATION lib NAMELINK_SKIP COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/ipc/python/specd DESTINATION lib/specd/python
    COMPONENT specd_gpu_check EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py"
    PATTERN "__pycache__" EXCLUDE)
  install(RUNTIME_DEPENDENCY_SET specd_gpu_check_libraries
    PRE_EXCLUDE_REGEXES ${glibc} POST_EXCLUDE_REGEXES "/libcuda[.]so"
    LIBRARY DESTINATION lib COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/gpu_check/run DESTINATION .
    COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/lib.sh ${PROJECT_SOURCE_DIR}/tools/gpu_check/results.sh
    ${PROJECT_SOURCE_DIR}/tools/gpu_check/sanitizer.sh
    ${PROJECT_SOURCE_DIR}/tools/gpu_check/peers.py
    ${PROJECT_SOURCE_DIR}/tools/gpu_check/peers_samplers.py
    ${PROJECT_SOURCE_DIR}/tools/gpu_check/peers_specd.py
    ${PROJECT_SOURCE_DIR}/tools/gpu_check/peers_triton.py
    DESTINATION share
    COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/gpu_check/README.md ${PROJECT_SOURCE_DIR}/LICENSE
    DESTINATION . COMPONENT specd_gpu_check EXCLUDE_FROM_ALL)
endif()
