# The headers that most files include, compiled once for the libraries and once for the tests. Every
# file still includes what it needs: SPECD_PRECOMPILE=OFF, as in preset fuzz, shows one that does not.
#
# g++ takes such a header only where position-independent code, sanitizers, debug information and the
# macros that the header asks for are the same. A file with flags of its own is left out by its
# property SKIP_PRECOMPILE_HEADERS.
#
# ccache has to find such a header of another checkout too (SpecdFlags.cmake). clang's names the file that
# it was made of, and is refused if that file has another time or size. So it has no times, and its folder
# has a name of its own for each list of headers. CMake's own options for clang name files from the root,
# and only to the compiler behind the driver, where ccache leaves them as they are.

set(specd_common_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <random> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -Xclang -include -Xclang cmake_pch.hxx
    -Xclang -fno-pch-timestamp -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
endif()

# specd_precompiled_headers(NAME PIC ON|OFF OPTIONS ... LIBRARIES ... HEADERS ...): the target that they are
# compiled for.
function(specd_precompiled_headers name)
  cmake_parse_arguments(arg "" "PIC" "OPTIONS;LIBRARIES;HEADERS" ${ARGN})
  set(headers ${specd_common_headers} ${arg_HEADERS})
  string(MD5 list "${headers}")
  set(target ${name}_${list})
  set_property(GLOBAL PROPERTY ${name} ${target})
  add_library(${target} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${target} PRIVATE specd_flags absl::statusor fmt::fmt ${arg_LIBRARIES})
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/CMakeFiles/${target}.dir)
  target_precompile_headers(${target} PRIVATE ${headers})
  target_compile_options(${target} PRIVATE ${arg_OPTIONS})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ${arg_PIC})
endfunction()

if(SPECD_PRECOMPILE)
  # g++ 12 inlines more of a precompiled std::string, and then warns of short copies that it takes for
  # longer ones.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(copies -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
    target_compile_options(specd_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${copies}>")
  endif()
  # fmt asks for its macro, which a target has only where it links fmt.
  target_compile_definitions(specd_flags INTERFACE
    $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  file(TOUCH ${PROJECT_BINARY_DIR}/precompiled.cc)
  specd_precompiled_headers(specd_precompiled PIC ON)
  if(SPECD_BUILD_TESTS)
    set(for_tests LIBRARIES doctest::doctest HEADERS <doctest/doctest.h>)
    specd_precompiled_headers(specd_test_precompiled PIC OFF
      OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1> ${for_tests})
    specd_precompiled_headers(specd_test_precompiled_O0 PIC OFF OPTIONS -O0 ${for_tests})  # SpecdTest.cmake
  endif()
endif()

# specd_precompile(TARGET FROM): TARGET takes the headers that were compiled for the name FROM.
function(specd_precompile target from)
  if(SPECD_PRECOMPILE)
    get_property(headers GLOBAL PROPERTY ${from})
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()
