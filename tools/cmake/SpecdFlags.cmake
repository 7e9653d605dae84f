# One interface target carries the flags of our own code. It is linked as a build-time detail and is
# never exported: a consumer of the installed library keeps its own flags.
#
# -ffp-contract=off: a compiler that fuses a*b+c on one target and not on another breaks the promise
# that every backend computes the same bits (docs/ALGORITHMS.md, "Numbers"). Fused operations are
# written out where they are meant.

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
  endif()
  # Another checkout of the same text takes the same objects: ccache names files from the folder of the
  # build, and no object says where its checkout lies. The sloppiness is for precompiled headers: without
  # it ccache keeps nothing that was compiled with them.
  find_program(SPECD_CCACHE ccache)
  if(SPECD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime ${SPECD_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  endif()
  # A file is called ./kernels/backend.cc, whether its path came from CMake or, shortened, from ccache.
  file(RELATIVE_PATH up ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  foreach(path ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${up})
    string(REGEX REPLACE "/$" "" path ${path})
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${path}=.>")
  endforeach()
endif()

add_library(specd_flags INTERFACE)
target_compile_features(specd_flags INTERFACE cxx_std_20)
target_include_directories(specd_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
set(host_flags -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -ffp-contract=off)
if(SPECD_WERROR)
  list(APPEND host_flags -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The precompiled headers fill the heap with which g++ begins: it collects garbage all the time. A
  # larger one takes a tenth off the compile time.
  list(APPEND host_flags "SHELL:--param ggc-min-heapsize=524288")
endif()
target_compile_options(specd_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${host_flags}>")

# The linker takes whole objects out of a library, and with sections of their own only the functions
# that a program calls.
if(NOT SPECD_SANITIZE AND NOT SPECD_FUZZ)
  target_compile_options(specd_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>")
  target_link_options(specd_flags INTERFACE -Wl,--gc-sections)
endif()

if(SPECD_TESTS_ONCE)
  # .ci/run starts no debugger. A test compiles a fifth faster without debug information.
  string(REPLACE "-g1" "-g0" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
endif()
if(SPECD_SANITIZE)
  # Debug information multiplies the compile time of sanitizer builds and their reports name
  # functions without it. AddressSanitizer stops where a program uses what object-size, null and
  # pointer-overflow look for. The last two are a third of the compile time of a file. As calls,
  # AddressSanitizer's checks compile a quarter faster.
  set(sanitize_flags -fsanitize=${SPECD_SANITIZE} -fno-sanitize=object-size,null,pointer-overflow
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(checks_as_calls --param=asan-instrumentation-with-call-threshold=0)
  else()
    set(checks_as_calls "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
  target_compile_options(specd_flags INTERFACE ${sanitize_flags} "${checks_as_calls}" -g0)
  target_compile_definitions(specd_flags INTERFACE SPECD_SANITIZED=1)
  target_link_options(specd_flags INTERFACE ${sanitize_flags})
endif()
if(SPECD_FUZZ)
  target_compile_options(specd_flags INTERFACE -fsanitize=fuzzer-no-link,address)
  target_link_options(specd_flags INTERFACE -fsanitize=fuzzer-no-link,address)
endif()

# specd_library(NAME folder SOURCES ... PUBLIC targets... PRIVATE targets...)
# makes the static library specd_<folder> with the alias specd::<folder>.
function(specd_library)
  cmake_parse_arguments(arg "" "NAME" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(specd_${arg_NAME} STATIC ${arg_SOURCES})
  add_library(specd::${arg_NAME} ALIAS specd_${arg_NAME})
  set_target_properties(specd_${arg_NAME} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(specd_${arg_NAME} PUBLIC ${arg_PUBLIC}
                        PRIVATE $<BUILD_INTERFACE:specd_flags> ${arg_PRIVATE})
  specd_precompile(specd_${arg_NAME} specd_precompiled)
endfunction()
