# Assembles the report page from the files of this folder: the variable report_page, with the line
# @SPECD_REPORT_DATA@ where the data goes. report_page_files lists the files. As a script it writes
# the page:
#   cmake -DPAGE=page.html -P tools/replay/report/assemble.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
endif()
set(report_scripts
  page.js model.js acceptance.js cause_filter.js rounds_view.js timeline.js heat_map.js
  sequence_table.js text_view.js tree_view.js token_panel.js search.js report.js)

set(report_page_files ${CMAKE_CURRENT_LIST_DIR}/report.html ${CMAKE_CURRENT_LIST_DIR}/report.css)
set(report_js "")
foreach(name ${report_scripts})
  list(APPEND report_page_files ${CMAKE_CURRENT_LIST_DIR}/${name})
  file(READ ${CMAKE_CURRENT_LIST_DIR}/${name} script)
  string(APPEND report_js "// ${name}\n${script}\n")
endforeach()
file(READ ${CMAKE_CURRENT_LIST_DIR}/report.css report_css)
file(READ ${CMAKE_CURRENT_LIST_DIR}/report.html report_page)
string(REPLACE "@report_css@" "${report_css}" report_page "${report_page}")
string(REPLACE "@report_js@" "${report_js}" report_page "${report_page}")

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(WRITE ${PAGE} "${report_page}")
endif()
