# Fails if a program or library that is installed has an RPATH, which its user could not go around with
# LD_LIBRARY_PATH. A RUNPATH is well. In: READELF, FOLDER (the installed tree).
file(GLOB files ${FOLDER}/bin/* ${FOLDER}/lib*/libspecd.so*)
if(NOT files)
  message(FATAL_ERROR "${FOLDER} has no programs")
endif()
foreach(file IN LISTS files)
  execute_process(COMMAND ${READELF} -d ${file} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  if(dynamic MATCHES "\\(RPATH\\)")
    message(FATAL_ERROR "${file} has an RPATH: leave --disable-new-dtags out of its link options")
  endif()
endforeach()
list(LENGTH files count)
message(STATUS "none of ${count} files has an RPATH")
