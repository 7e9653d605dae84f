# cpack runs this file after each package that it has made. It compresses the files of the Debian package as
# SpecdPackArchive.cmake does those of the archive: cpack's own xz looks back 8 MiB, and one program is larger.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  get_filename_component(folder ${package} DIRECTORY)
  execute_process(
    COMMAND ar p ${package} data.tar
    COMMAND xz --lzma2=preset=1,dict=64MiB --stdout
    OUTPUT_FILE ${folder}/data.tar.xz COMMAND_ERROR_IS_FATAL ANY)
  execute_process(
    COMMAND ar d ${package} data.tar
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(
    COMMAND ar q ${package} data.tar.xz
    WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${folder}/data.tar.xz)
endforeach()
