# Asks a doctest binary for its cases and writes the file that registers them with ctest. Run with
# `cmake -P` after each link by specd_test().
#
# doctest brings such a script, but it asks with an unescaped filter (a comma in a name loses the
# label) and splits names at semicolons (ctest then runs nothing and calls that passed). This one
# reads the XML listing once, refuses a case without a suite or with a name used twice, and lets a
# test fail when no case ran under its name, one that is decorated with skip() included.
#
# In: TEST_EXECUTABLE, TEST_PREFIX, TEST_WORKING_DIR, CTEST_FILE.

execute_process(
  COMMAND ${TEST_EXECUTABLE} --list-test-cases --no-skip --reporters=xml
  OUTPUT_VARIABLE listing RESULT_VARIABLE result WORKING_DIRECTORY ${TEST_WORKING_DIR})
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${TEST_EXECUTABLE} could not list its tests (${result}):\n${listing}")
endif()

function(unescape_xml text result)
  string(REPLACE "&lt;" "<" text "${text}")
  string(REPLACE "&gt;" ">" text "${text}")
  string(REPLACE "&quot;" "\"" text "${text}")
  string(REPLACE "&amp;" "&" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

set(script "")
set(seen "\n")
while(listing MATCHES "<TestCase name=\"([^\"]*)\"( testsuite=\"([^\"]*)\")?")
  set(escaped_name "${CMAKE_MATCH_1}")
  set(suite "${CMAKE_MATCH_3}")
  set(element "${CMAKE_MATCH_0}")
  string(FIND "${listing}" "${element}" begin)
  string(LENGTH "${element}" length)
  math(EXPR end "${begin} + ${length}")
  string(SUBSTRING "${listing}" ${end} -1 listing)

  unescape_xml("${escaped_name}" name)
  string(FIND "${seen}" "\n${name}\n" twice)
  if(NOT twice EQUAL -1)
    message(FATAL_ERROR "${TEST_PREFIX} has two test cases named \"${name}\": rename one")
  endif()
  if(suite STREQUAL "")
    message(FATAL_ERROR "test case \"${TEST_PREFIX}${name}\" stands outside a TEST_SUITE, so that "
      "ctest has no label for it: put it into one (unit, process, exact, ...)")
  endif()
  string(APPEND seen "${name}\n")
  string(REPLACE "," "\\," filter "${name}")
  set(test "[==[${TEST_PREFIX}${name}]==]")
  string(APPEND script
    "add_test(${test} [==[${TEST_EXECUTABLE}]==] [==[--test-case=${filter}]==])\n"
    "set_tests_properties(${test} PROPERTIES LABELS ${suite}"
    " WORKING_DIRECTORY [==[${TEST_WORKING_DIR}]==]"
    " FAIL_REGULAR_EXPRESSION [==[test cases: +0 [|]]==])\n")
endwhile()
if(script STREQUAL "")
  message(FATAL_ERROR "${TEST_EXECUTABLE} holds no test case")
endif()
file(WRITE "${CTEST_FILE}" "${script}")
