# Fails if libspecd exports anything but the functions of the installed headers: a symbol of ours, or of a
# library linked into ours, could take the place of one in the engine's process.
# In: NM, LIBRARY, HEADERS (their folder).
execute_process(COMMAND ${NM} --dynamic --defined-only ${LIBRARY}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" symbols "${symbols}")
string(REPLACE "\n" "" symbols "${symbols}")

file(GLOB files ${HEADERS}/*.h)
set(declarations "")
foreach(file ${files})
  file(READ ${file} header)
  string(REGEX MATCHALL "\nSPECD_API [^;(]*" found "${header}")
  list(APPEND declarations ${found})
endforeach()
list(TRANSFORM declarations REPLACE ".*[ *]" "")

set(surplus ${symbols})
list(REMOVE_ITEM surplus ${declarations})
set(missing ${declarations})
list(REMOVE_ITEM missing ${symbols})
if(surplus OR missing)
  message(FATAL_ERROR "${LIBRARY}\n  exports beyond its headers: ${surplus}\n  does not export: ${missing}")
endif()
list(LENGTH declarations count)
message(STATUS "exports the ${count} functions of its headers and nothing else")
