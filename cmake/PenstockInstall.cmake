# Installs the libraries with one export set each, and the package configuration that loads them
# by component: find_package(penstock COMPONENTS plan). In two parts, which become Debian packages: the
# `program` with its documents, and what is needed for `development`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PENSTOCK_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/penstock")
set(part COMPONENT development)

install(TARGETS penstock_plan EXPORT penstock-plan
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${part}
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${part}
  FILE_SET HEADERS ${part})
install(EXPORT penstock-plan NAMESPACE penstock:: DESTINATION "${PENSTOCK_PACKAGE_DIR}" ${part})
if(PENSTOCK_BUILD_RUN)
  install(TARGETS penstock_run EXPORT penstock-run
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${part}
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${part}
    FILE_SET HEADERS ${part})
  install(EXPORT penstock-run NAMESPACE penstock:: DESTINATION "${PENSTOCK_PACKAGE_DIR}" ${part})
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/penstockConfig.cmake.in" "${PROJECT_BINARY_DIR}/penstockConfig.cmake"
  INSTALL_DESTINATION "${PENSTOCK_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/penstockConfig.cmake" "${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake"
  DESTINATION "${PENSTOCK_PACKAGE_DIR}" ${part})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}" ${part}
  REGEX "(run_example|join_examples)\\.cmake$" EXCLUDE)

if(PENSTOCK_BUILD_APPS)
  set(part COMPONENT program)
  install(TARGETS penstock_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" ${part})
  if(PENSTOCK_BUILD_RUN)
    install(TARGETS penstock_run_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" ${part})
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}" ${part})
  if(PENSTOCK_BUILD_RUN)
    # What `penstock train` learns from if it is given nothing else; shipped_text.cpp looks for it.
    set(text "${CMAKE_INSTALL_DATADIR}/penstock/text")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/src"
      DESTINATION "${text}" ${part})
    install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/ARCHITECTURE.md"
      "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md" DESTINATION "${text}" ${part})
  endif()
  install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
    "${PROJECT_SOURCE_DIR}/ARCHITECTURE.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" ${part})
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    RENAME copyright ${part})
endif()
