# specd_test(NAME kernels [BUSY] [ONCE] SOURCES a_test.cc ... LIBS specd::kernels ...)
# builds one doctest binary, specd_kernels_test, and registers each of its cases with ctest as
# "kernels.<case>". A TEST_SUITE's name becomes a ctest label (unit, process, exact, ...), so every
# case must stand in a suite.
#
# A test takes longer to compile than to run. So it is not optimised, which takes a third off its
# compile time. BUSY tests are, because they spend their time in code of their own, such as emulated
# warps. Libraries are always optimised, those of tests too.
#
# Preset sanitize runs every case of a ONCE test, on the same grid as any preset: none of its suites is
# "process", which that preset leaves out. Where all presets run, SPECD_TESTS_ONCE leaves such tests to
# that one.

if(SPECD_BUILD_TESTS)
  enable_testing()
endif()

function(specd_test)
  cmake_parse_arguments(arg "BUSY;ONCE" "NAME" "SOURCES;LIBS" ${ARGN})
  set(target specd_${arg_NAME}_test)
  if(NOT TARGET specd_test_main)
    add_library(specd_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cc)
    target_link_libraries(specd_test_main PRIVATE specd_flags doctest::doctest)
  endif()
  add_executable(${target} $<TARGET_OBJECTS:specd_test_main> ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE specd_flags ${arg_LIBS} doctest::doctest)
  if(arg_BUSY)
    specd_precompile(${target} specd_test_precompiled)
  else()
    target_compile_options(${target} PRIVATE -O0)
    specd_precompile(${target} specd_test_precompiled_O0)
  endif()

  if(arg_ONCE AND SPECD_TESTS_ONCE AND NOT SPECD_SANITIZE)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  set(cases ${CMAKE_CURRENT_BINARY_DIR}/${target}_cases.cmake)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/SpecdDiscoverTests.cmake)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${cases} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D TEST_EXECUTABLE=$<TARGET_FILE:${target}> -D TEST_PREFIX=${arg_NAME}.
            -D TEST_WORKING_DIR=${CMAKE_CURRENT_BINARY_DIR} -D CTEST_FILE=${cases} -P ${script})
  set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include_file}
    "if(EXISTS \"${cases}\")\n"
    "  include(\"${cases}\")\n"
    "else()\n"
    "  add_test(${target}_not_built ${target}_not_built)\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endfunction()
