# The HTML report's page, compiled into the library: its files become constants of a source that the
# build writes. The scripts are joined in this order, because they share one scope.
set(page "${PROJECT_SOURCE_DIR}/src/penstock/plan/report/page")
set(page_scripts
  format actions costs memory timeline simulate explain model view picture timeline_chart timeline_input
  memory_chart ledger comparison cost_controls report)
list(TRANSFORM page_scripts REPLACE "(.+)" "${page}/\\1.js")
string(REPLACE ";" "+" joined_scripts "${page_scripts}")
set(page_source "${CMAKE_CURRENT_BINARY_DIR}/plan/report/page_sources.cpp")
file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/plan/report")
add_custom_command(OUTPUT "${page_source}"
  COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${page_source}"
    -DHEADER=penstock/plan/report/internal/page_sources.h
    "-DCONSTANTS=kPageTemplate=${page}/report.html|kPageStyle=${page}/report.css|kPageScript=${joined_scripts}"
    -P "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
  DEPENDS "${page}/report.html" "${page}/report.css" ${page_scripts}
    "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
  COMMENT "Embedding the page of the HTML report"
  VERBATIM)
# Clang measures the joined literals and warns of compilers that take 64 KiB at most.
set_source_files_properties("${page_source}" PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
target_sources(penstock_plan PRIVATE "${page_source}")
