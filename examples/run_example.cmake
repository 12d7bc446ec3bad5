# Runs an example and compares what it prints. Called by CTest with
#   EXPECTED    its lines, separated by |, in any order
#   -- <command>...
cmake_minimum_required(VERSION 3.23)

set(command "")
set(is_behind_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
  if(is_behind_dashes)
    list(APPEND command "${CMAKE_ARGV${index}}")
  elseif(CMAKE_ARGV${index} STREQUAL "--")
    set(is_behind_dashes TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
foreach(text IN ITEMS output EXPECTED)
  string(REGEX REPLACE "[\n|]+" ";" ${text} "${${text}}")
  list(REMOVE_ITEM ${text} "")
  list(SORT ${text})
endforeach()
if(NOT result EQUAL 0 OR NOT output STREQUAL EXPECTED OR NOT errors STREQUAL "")
  message(FATAL_ERROR "expected:\n${EXPECTED}\nfound (${result}):\n${output}\n${errors}")
endif()
