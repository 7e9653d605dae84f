# cpack runs this file to make the archive of what it has installed (CPack's generator External). Three
# of the files hold the same kernels. xz sees that if it looks back so far, and the archive has half the size.
set(archive ${CPACK_PACKAGE_DIRECTORY}/${CPACK_PACKAGE_FILE_NAME}.tar.xz)
get_filename_component(folder ${CPACK_TEMPORARY_DIRECTORY} DIRECTORY)
get_filename_component(name ${CPACK_TEMPORARY_DIRECTORY} NAME)
execute_process(
  COMMAND tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory ${folder} ${name}
  COMMAND xz --lzma2=preset=1,dict=64MiB --stdout
  OUTPUT_FILE ${archive} COMMAND_ERROR_IS_FATAL ANY)
set(CPACK_EXTERNAL_BUILT_PACKAGES ${archive})
