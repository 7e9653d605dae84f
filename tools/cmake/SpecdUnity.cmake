# Compiles the files of a target together, up to specd_files_together at a time: what they include is
# read once, and what they use of templates is made once. That takes half off the compile time. A
# change to one file then compiles its neighbours again.
#
# SPECD_UNITY is OFF without being asked for, because a name of one file's own may hide a header's name
# from the files behind it: nine tests of kernels then read another test's limits. A program takes
# whole objects out of a library, so with ALL it takes more than it needs; TESTS leaves libraries alone.
#
# Two files may give one name to two things of their own, in namespaces without a name. Such files are
# kept apart. A file with compile options of its own is always compiled alone.

set(specd_files_together 8)

# g++ takes a file that is included for a header, in which a namespace without a name would be a mistake.
if(SPECD_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(specd_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# specd_own_names(OUT FILE): the names that FILE declares at the left margin of a nameless namespace.
function(specd_own_names out file)
  file(READ ${file} text)
  # A list of CMake takes brackets and semicolons for its own.
  string(REGEX REPLACE "[];[\\]" "=" text "${text}")
  string(REGEX MATCHALL "\n(namespace {|}  // namespace\n|[A-Za-z][^\n]*)" lines "\n${text}")
  set(names)
  set(inside OFF)
  foreach(line IN LISTS lines)
    if(line STREQUAL "\nnamespace {")
      set(inside ON)
    elseif(line MATCHES "^\n}")
      set(inside OFF)
    elseif(NOT inside)
      continue()
    elseif(line MATCHES "^\nusing ([A-Za-z_0-9]+) =")
      list(APPEND names ${CMAKE_MATCH_1})
    elseif(line MATCHES "^\n(using|namespace) ")
      continue()
    elseif(line MATCHES "^\n(struct|enum|enum class|class|union) ([A-Za-z_0-9]+)")
      list(APPEND names ${CMAKE_MATCH_2})
    elseif(line MATCHES "^\n[^=({]*[ *&]([A-Za-z_0-9]+) *([=({]|$)")
      list(APPEND names ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# specd_put_together(TARGET): gives each source of TARGET the first group that has room and none of
# its names.
function(specd_put_together target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(groups 0)
  foreach(source IN LISTS sources)
    get_filename_component(path "${source}" ABSOLUTE BASE_DIR ${folder})
    get_source_file_property(options "${path}" DIRECTORY ${folder} COMPILE_OPTIONS)
    if(NOT source MATCHES "\\.cc$" OR NOT EXISTS "${path}" OR options)
      continue()
    endif()
    specd_own_names(names ${path})
    set(group 0)
    while(group LESS groups)
      set(both ${names_${group}} ${names})
      list(LENGTH both with_doubles)
      list(REMOVE_DUPLICATES both)
      list(LENGTH both length)
      list(LENGTH files_${group} count)
      if(length EQUAL with_doubles AND count LESS specd_files_together)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
    endif()
    list(APPEND files_${group} ${path})
    list(APPEND names_${group} ${names})
  endforeach()
  if(groups EQUAL 0)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  math(EXPR last "${groups} - 1")
  foreach(group RANGE ${last})
    set_source_files_properties(${files_${group}} TARGET_DIRECTORY ${target}
      PROPERTIES UNITY_GROUP ${target}_${group})
  endforeach()
endfunction()

# specd_put_all_together(FOLDER): all targets of FOLDER and below that compile something.
function(specd_put_all_together folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(STATIC|SHARED|OBJECT|MODULE)_LIBRARY$|^EXECUTABLE$" AND NOT target MATCHES "precompiled")
      specd_put_together(${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    specd_put_all_together(${below})
  endforeach()
endfunction()

if(SPECD_UNITY STREQUAL "ALL")
  specd_put_all_together(${PROJECT_SOURCE_DIR})
elseif(SPECD_UNITY STREQUAL "TESTS" AND SPECD_BUILD_TESTS)
  specd_put_all_together(${PROJECT_SOURCE_DIR}/tests)
elseif(NOT SPECD_UNITY MATCHES "^(TESTS|OFF)$")
  message(FATAL_ERROR "SPECD_UNITY = ${SPECD_UNITY} is unknown: give TESTS, ALL or OFF")
endif()
