# Debian packages, made by `cpack -G DEB` in the build folder: `penstock`, the program and its
# documents, and `libpenstock-dev`, the libraries, headers and CMake files.
set(CPACK_PACKAGE_NAME penstock)
set(CPACK_PACKAGE_VENDOR "The Penstock authors")
set(CPACK_PACKAGE_CONTACT "The Penstock authors <penstock@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)

set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME penstock)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
# The libraries that the programs were linked with, as the system's own packages have them.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libpenstock-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS libfmt-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "penstock, cmake (>= 3.23)")
if(PENSTOCK_BUILD_RUN)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libtorch-dev, libssl-dev")
endif()
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "libraries, headers and CMake files")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "the program, and the documents")
include(CPack)
