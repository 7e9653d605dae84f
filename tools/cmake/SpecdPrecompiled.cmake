# The headers that most files include, compiled once for the libraries and once for the tests. Every
# file still includes what it needs: SPECD_PRECOMPILE=OFF, as in preset fuzz, shows one that does not.
#
# g++ takes such a header only where position-independent code, sanitizers, debug information and the
# macros that the header asks for are the same. A file with flags of its own is left out by its
# property SKIP_PRECOMPILE_HEADERS.

set(specd_common_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <random> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h>)

# specd_precompiled_headers(TARGET LIBRARIES ... HEADERS ...): the target that they are compiled for.
function(specd_precompiled_headers target)
  cmake_parse_arguments(arg "" "" "LIBRARIES;HEADERS" ${ARGN})
  add_library(${target} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${target} PRIVATE specd_flags absl::statusor fmt::fmt ${arg_LIBRARIES})
  target_precompile_headers(${target} PRIVATE ${specd_common_headers} ${arg_HEADERS})
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
  specd_precompiled_headers(specd_precompiled)
  set_target_properties(specd_precompiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(SPECD_BUILD_TESTS)
    specd_precompiled_headers(specd_test_precompiled
      LIBRARIES doctest::doctest HEADERS <doctest/doctest.h>)
    target_compile_options(specd_test_precompiled PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    specd_precompiled_headers(specd_test_precompiled_O0  # SpecdTest.cmake
      LIBRARIES doctest::doctest HEADERS <doctest/doctest.h>)
    target_compile_options(specd_test_precompiled_O0 PRIVATE -O0)
  endif()
endif()

# specd_precompile(TARGET FROM): TARGET takes the headers that were compiled for FROM.
function(specd_precompile target from)
  if(SPECD_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
