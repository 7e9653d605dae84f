# The headers that most files include, compiled once for the libraries and once for the tests. Every
# file still includes what it needs: SPECD_PRECOMPILE=OFF, as in preset fuzz, shows one that does not.
#
# g++ takes such a header only where position-independent code, sanitizers, debug information and the
# macros that the header asks for are the same. A file with flags of its own is left out by its
# property SKIP_PRECOMPILE_HEADERS.
#
# clang's precompiled header names the folder that it was made in, and is refused where that folder is not.
# So each checkout makes its own, without ccache; it holds no times, so that a second build at that path is
# the same. CMake's own options for clang reach only the compiler behind the driver, where ccache does not
# see them.

set(specd_common_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <random> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -Xclang -include -Xclang cmake_pch.hxx
    -Xclang -fno-pch-timestamp -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
endif()

# specd_precompiled_headers(NAME PIC ON|OFF OPTIONS ... LIBRARIES ... HEADERS ...): NAME is the target.
function(specd_precompiled_headers name)
  cmake_parse_arguments(arg "" "PIC" "OPTIONS;LIBRARIES;HEADERS" ${ARGN})
  set(headers ${specd_common_headers} ${arg_HEADERS})
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${name} PRIVATE specd_flags absl::statusor fmt::fmt ${arg_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/CMakeFiles/${name}.dir)
  target_precompile_headers(${name} PRIVATE ${headers})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${arg_PIC})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
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
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
