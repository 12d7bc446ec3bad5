# Configures, builds and runs a project that uses Penstock. Called by CTest with
#   WAY             find_package | find_package_run | debian_package | add_subdirectory | unknown_component
#   SOURCE_DIR      root of this repository
#   BINARY_DIR      build folder of this repository, all built
#   WORK_DIR        folder for everything made here
#   GENERATOR, CXX_COMPILER
cmake_minimum_required(VERSION 3.23)
include("${CMAKE_CURRENT_LIST_DIR}/run_command.cmake")

set(expected_output
"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD
1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD
")

# By add_subdirectory the library is compiled once more: a second run takes up what is there.
if(NOT WAY STREQUAL "add_subdirectory")
  file(REMOVE_RECURSE "${WORK_DIR}")
endif()
file(MAKE_DIRECTORY "${WORK_DIR}")
set(outside "${SOURCE_DIR}/tests/install/outside")
set(program outside)
set(flags "")
if(WAY MATCHES "find_package_run|debian_package")
  # The examples are such a project, too; one of them will do.
  set(outside "${SOURCE_DIR}/examples")
  set(program shortest)
  set(expected_output "4 losses\n")
else()
  # Torch must not even be looked for.
  set(flags -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
endif()
set(configure "${CMAKE_COMMAND}" -S "${outside}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" ${flags})

if(WAY STREQUAL "add_subdirectory")
  run(${configure} "-DPENSTOCK_SOURCE_DIR=${SOURCE_DIR}" -DPENSTOCK_BUILD_RUN=OFF
    -DPENSTOCK_UNITY_BUILD=ON)
elseif(WAY STREQUAL "debian_package")
  include("${CMAKE_CURRENT_LIST_DIR}/debian_package.cmake")
  unpack_debian_packages("${WORK_DIR}/root")
  list(APPEND configure "-DCMAKE_PREFIX_PATH=${WORK_DIR}/root/usr")
else()
  run("${CMAKE_COMMAND}" --install "${BINARY_DIR}" --prefix "${WORK_DIR}/prefix")
  file(GLOB_RECURSE internal_headers "${WORK_DIR}/prefix/include/*/internal/*")
  if(internal_headers)
    message(FATAL_ERROR "internal headers are installed: ${internal_headers}")
  endif()
  # Elsewhere than where it was installed: nothing in the package may name a fixed path.
  file(RENAME "${WORK_DIR}/prefix" "${WORK_DIR}/moved")
  list(APPEND configure "-DCMAKE_PREFIX_PATH=${WORK_DIR}/moved")
endif()

if(WAY STREQUAL "unknown_component")
  execute_process(COMMAND ${configure} "-DCOMPONENTS=plan;fly"
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(result EQUAL 0 OR NOT output MATCHES "penstock has no component \"fly\"; it has: plan")
    message(FATAL_ERROR "an unknown component is not refused clearly (${result}):\n${output}")
  endif()
  return()
endif()

if(NOT WAY STREQUAL "add_subdirectory")
  run(${configure})
endif()
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build" --target ${program})
execute_process(COMMAND "${WORK_DIR}/build/${program}" OUTPUT_VARIABLE output
  RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT output STREQUAL expected_output)
  message(FATAL_ERROR "expected:\n${expected_output}\nfound (${result}):\n${output}")
endif()
