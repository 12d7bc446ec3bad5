# Writes a C++ source that holds text files as constants. Run by the build:
#   cmake -DOUTPUT=<source> -DHEADER=<header to include> "-DCONSTANTS=<name>=<file>[+<file>]..."
#         -P EmbedFiles.cmake
# Each constant is the concatenation of its files, in order. Constants are separated by '|'.
string(REPLACE "|" ";" constants "${CONSTANTS}")
set(source "// Written by cmake/EmbedFiles.cmake.\n#include \"${HEADER}\"\n\nnamespace penstock {\n")
foreach(constant IN LISTS constants)
  string(REGEX MATCH "^([^=]+)=(.*)$" matched "${constant}")
  string(APPEND source "\nconst std::string_view ${CMAKE_MATCH_1} =")
  string(REPLACE "+" ";" files "${CMAKE_MATCH_2}")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    # Compilers limit the length of one literal; neighbours are joined.
    string(LENGTH "${text}" length)
    set(begin 0)
    while(begin LESS length)
      string(SUBSTRING "${text}" ${begin} 8000 piece)
      string(APPEND source "\n    R\"PENSTOCK(${piece})PENSTOCK\"")
      math(EXPR begin "${begin} + 8000")
    endwhile()
  endforeach()
  string(APPEND source ";\n")
endforeach()
string(APPEND source "\n}  // namespace penstock\n")
file(WRITE "${OUTPUT}" "${source}")
