# Two promises that only the object files can keep: no libm exp, log or pow in the kernels (another
# libm would give other bits), and nothing in the AVX2 objects that the linker could put into the
# path of a processor without AVX2.
execute_process(COMMAND ${NM} -C --undefined-only ${ARCHIVE}
                OUTPUT_VARIABLE undefined COMMAND_ERROR_IS_FATAL ANY)
if(NOT undefined MATCHES "specd::")
  message(FATAL_ERROR "nm listed nothing of ours: the check would prove nothing")
endif()
string(REGEX MATCHALL " U (__)?(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|powi)[fl]?(@[^\n]*)?(_finite)?\n"
       found "${undefined}\n")
if(found)
  message(FATAL_ERROR "libm functions in the kernels:\n${found}")
endif()

if(AVX2_OBJECT)
  execute_process(COMMAND ${NM} -C --defined-only ${AVX2_OBJECT}
                  OUTPUT_VARIABLE defined COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${defined}")
  foreach(line IN LISTS lines)
    # W, V and u are what the linker may choose one copy of.
    if(line MATCHES "^[0-9a-f]+ [WVu] " AND NOT line MATCHES "CpuTarget\\)1")
      message(FATAL_ERROR "shared by other objects, but compiled for AVX2: ${line}")
    endif()
  endforeach()
endif()
