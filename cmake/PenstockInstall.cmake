# Installs the libraries with one export set each, and the package configuration that loads them
# by component: find_package(penstock COMPONENTS plan).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PENSTOCK_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/penstock")

install(TARGETS penstock_plan EXPORT penstock-plan FILE_SET HEADERS
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT penstock-plan NAMESPACE penstock:: DESTINATION "${PENSTOCK_PACKAGE_DIR}")
if(PENSTOCK_BUILD_RUN)
  install(TARGETS penstock_run EXPORT penstock-run FILE_SET HEADERS
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT penstock-run NAMESPACE penstock:: DESTINATION "${PENSTOCK_PACKAGE_DIR}")
endif()
if(PENSTOCK_BUILD_APPS)
  install(TARGETS penstock_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  if(PENSTOCK_BUILD_RUN)
    install(TARGETS penstock_run_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/penstockConfig.cmake.in" "${PROJECT_BINARY_DIR}/penstockConfig.cmake"
  INSTALL_DESTINATION "${PENSTOCK_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/penstockConfig.cmake" "${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake"
  DESTINATION "${PENSTOCK_PACKAGE_DIR}")
