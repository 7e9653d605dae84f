# Two promises that only the object files can keep: no libm exp, log or pow in the kernels (another
# libm would give other bits), and nothing in the objects for newer processors that the linker
# could put into the path of an older one.
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

foreach(object IN LISTS SIMD_OBJECTS)
  execute_process(COMMAND ${NM} -C --defined-only ${object}
                  OUTPUT_VARIABLE defined COMMAND_ERROR_IS_FATAL ANY)
  # Highway's names for the targets; SimdTeam lives in a namespace of that name.
  set(target N_AVX2)
  if(object MATCHES "avx512")
    set(target N_AVX3)
  endif()
  if(NOT defined MATCHES "${target}::SimdTeam")
    message(FATAL_ERROR "nothing for ${target} in ${object}: the check would prove nothing")
  endif()
  string(REPLACE "\n" ";" lines "${defined}")
  foreach(line IN LISTS lines)
    # W, V and u are what the linker may choose one copy of.
    if(line MATCHES "^[0-9a-f]+ [WVu] " AND NOT line MATCHES "specd::${target}::")
      message(FATAL_ERROR "${object}: shared by other objects, but compiled for ${target}: ${line}")
    endif()
    if(line MATCHES "_GLOBAL__sub_I")
      message(FATAL_ERROR "${object}: runs when the program starts, but compiled for ${target}: ${line}")
    endif()
  endforeach()
endforeach()
