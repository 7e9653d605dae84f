# Fails if libspecd needs spdlog or has a part of spdlog inside: an engine has its own logger, and libspecd
# reports by codes and texts. In: READELF, NM, LIBRARY, and OBJECTS, the files that LIBRARY was linked from.
execute_process(COMMAND ${READELF} --dynamic --wide ${LIBRARY}
  OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(NOT dynamic MATCHES "\\(NEEDED\\)")
  message(FATAL_ERROR "readelf lists nothing that ${LIBRARY} needs: the check would prove nothing")
endif()
if(dynamic MATCHES "\\(NEEDED\\)[^\n]*(libspdlog[^]\n]*)")
  message(FATAL_ERROR "${LIBRARY} needs ${CMAKE_MATCH_1}: log in the daemon, not in what libspecd links")
endif()

# If spdlog was linked statically or compiled from its headers, only symbols name it. The objects have
# their symbols even where the library was stripped. Names are mangled, as those of namespaces are.
foreach(file IN LISTS LIBRARY OBJECTS)
  execute_process(COMMAND ${NM} ${file}
    OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  string(FIND "${symbols}" "5specd" ours)
  if(ours EQUAL -1 AND NOT file STREQUAL LIBRARY)
    message(FATAL_ERROR "nm lists nothing of ours in ${file}: the check would prove nothing")
  endif()
  string(FIND "${symbols}" "6spdlog" at)
  if(NOT at EQUAL -1)
    string(SUBSTRING "${symbols}" ${at} 80 name)
    string(REGEX REPLACE "\n.*" "" name "${name}")
    message(FATAL_ERROR "${file} has a part of spdlog inside: ...${name}")
  endif()
endforeach()
list(LENGTH OBJECTS count)
message(STATUS "neither libspecd nor any of its ${count} objects and archives has spdlog")
