# Links with gold where it is there: some sixty programs take a third of the time. It warns of hundreds of
# symbols of Clang's sanitizers.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold PENSTOCK_HAS_GOLD)
if(PENSTOCK_HAS_GOLD AND NOT PENSTOCK_SANITIZERS)
  add_link_options(-fuse-ld=gold)
endif()
