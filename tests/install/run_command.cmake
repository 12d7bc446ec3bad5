# run(<command>...): fails the test, with the output, if the command fails. Otherwise `output` has it.
function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE printed ERROR_VARIABLE printed RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${result}):\n${printed}")
  endif()
  set(output "${printed}" PARENT_SCOPE)
endfunction()
