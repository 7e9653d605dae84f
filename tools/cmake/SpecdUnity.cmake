# Compiles the files of a target together, up to specd_files_together at a time: what they include is
# read once, and what they use of templates is made once. That takes half off the compile time. A
# change to one file then compiles its neighbours again.
#
# A name in a namespace without a name hides the name of a header from the files behind it. Two files are
# kept apart if one contains a name that the other declares in its nameless namespace. A file with compile
# options or definitions of its own is always compiled alone, and so are the files of a target with
# SPECD_ALONE.
#
# CMake could do this (UNITY_BUILD), but its files name the sources from the root of the machine: ccache
# then finds no object of another checkout.
#
# A program takes whole objects out of a library. The linker drops functions that nobody calls
# (SpecdFlags.cmake), but not what runs before main, such as the registration of CUDA kernels.

set(specd_files_together 8)

# g++ takes a file that is included for a header, in which a namespace without a name would be a mistake.
if(SPECD_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(specd_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# specd_names(OWN SAID FILE): the names that FILE declares at the left margin of a nameless namespace, and
# all names that it says outside comments.
function(specd_names own said file)
  file(READ ${file} text)
  # A list of CMake takes brackets and semicolons for its own.
  string(REGEX REPLACE "[];[\\]" "=" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "//" without_comments "${text}")
  string(REGEX MATCHALL "[A-Za-z_][A-Za-z_0-9]*" words "${without_comments}")
  list(REMOVE_DUPLICATES words)
  set(${said} "${words}" PARENT_SCOPE)
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
  set(${own} "${names}" PARENT_SCOPE)
endfunction()

# specd_disjoint(OUT A B): whether the lists named A and B, each without doubles, share no name.
function(specd_disjoint out a b)
  set(both ${${a}} ${${b}})
  list(LENGTH both with_doubles)
  list(REMOVE_DUPLICATES both)
  list(LENGTH both length)
  if(length EQUAL with_doubles)
    set(${out} ON PARENT_SCOPE)
  else()
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# specd_put_together(TARGET): gives each source of TARGET the first group that has room, says none of the
# source's own names, and has no own name that the source says. Groups of a library have files of one
# folder.
function(specd_put_together target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(type ${target} TYPE)
  set(groups 0)
  foreach(source IN LISTS sources)
    get_filename_component(path "${source}" ABSOLUTE BASE_DIR ${folder})
    if(NOT source MATCHES "\\.cc$" OR NOT EXISTS "${path}")
      continue()
    endif()
    get_source_file_property(options "${path}" DIRECTORY ${folder} COMPILE_OPTIONS)
    get_source_file_property(definitions "${path}" DIRECTORY ${folder} COMPILE_DEFINITIONS)
    get_source_file_property(alone "${path}" DIRECTORY ${folder} SKIP_UNITY_BUILD_INCLUSION)
    if(options OR definitions OR alone)
      continue()
    endif()
    specd_names(own said ${path})
    set(room "")
    if(NOT type STREQUAL "EXECUTABLE")
      get_filename_component(room ${path} DIRECTORY)
    endif()
    set(group 0)
    while(group LESS groups)
      list(LENGTH files_${group} count)
      if(count LESS specd_files_together AND room STREQUAL room_${group})
        specd_disjoint(ours own said_${group})
        specd_disjoint(theirs own_${group} said)
        if(ours AND theirs)
          break()
        endif()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
      set(room_${group} "${room}")
    endif()
    list(APPEND files_${group} ${path})
    list(APPEND own_${group} ${own})
    list(APPEND said_${group} ${said})
    list(REMOVE_DUPLICATES said_${group})
  endforeach()
  if(groups EQUAL 0)
    return()
  endif()
  get_target_property(build ${target} BINARY_DIR)
  math(EXPR last "${groups} - 1")
  foreach(group RANGE ${last})
    set(text "")
    foreach(file IN LISTS files_${group})
      file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
      string(APPEND text "#include \"${name}\"\n")
    endforeach()
    set(together ${build}/together/${target}_${group}.cc)
    file(CONFIGURE OUTPUT ${together} CONTENT "${text}" @ONLY)
    target_sources(${target} PRIVATE ${together})
    set_source_files_properties(${files_${group}} TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
endfunction()

# specd_put_all_together(FOLDER): all targets of FOLDER and below that compile something.
function(specd_put_all_together folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(alone ${target} SPECD_ALONE)
    if(NOT alone AND type MATCHES "^(STATIC|SHARED|OBJECT|MODULE)_LIBRARY$|^EXECUTABLE$" AND NOT target MATCHES "precompiled")
      specd_put_together(${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    specd_put_all_together(${below})
  endforeach()
endfunction()

if(SPECD_UNITY)
  specd_put_all_together(${PROJECT_SOURCE_DIR})
endif()
