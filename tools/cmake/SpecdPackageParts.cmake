# cpack reads this file once for each package: which components it has. Those that correct what was
# installed before them come last.
set(components specd_runtime specd_development specd_python)
if(CPACK_GENERATOR STREQUAL "DEB")
  list(APPEND components specd_debian)
else()
  list(APPEND components specd_bundle)
endif()
set(CPACK_MONOLITHIC_INSTALL ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "")
foreach(component IN LISTS components)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${CPACK_SPECD_BUILD} specd ${component} /)
endforeach()
