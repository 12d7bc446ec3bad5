# penstock_target(<target>): what every target of this project has in common.
# Nothing here reaches targets of a project that merely uses Penstock.
function(penstock_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    UNITY_BUILD ${PENSTOCK_UNITY_BUILD}
    UNITY_BUILD_BATCH_SIZE 16
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
    -Woverloaded-virtual
    # Not of names in a neighbour of the batch.
    $<$<NOT:$<BOOL:${PENSTOCK_UNITY_BUILD}>>:-Wshadow>
    # GCC 12 sees overflows where it inlines std::string or c10::IValue that are none (bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow -Wno-restrict>
    $<$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>:-Werror>)
  if(PENSTOCK_SANITIZERS)
    target_link_options(${target} PUBLIC -fsanitize=${PENSTOCK_SANITIZERS})
  endif()
  if(PENSTOCK_SANITIZERS AND NOT PENSTOCK_PLAIN_TARGETS)
    target_compile_options(${target} PRIVATE
      -fsanitize=${PENSTOCK_SANITIZERS} -fno-sanitize-recover=all -fno-omit-frame-pointer
      # libtorch keeps the type information of some classes to itself, which this check would need.
      -fno-sanitize=vptr
      # GCC advises so: what instrumentation adds looks uninitialized to it.
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# penstock_reuse_torch_header(<target>): takes over the precompiled header that tests with libtorch share, where
# there are tests.
function(penstock_reuse_torch_header target)
  if(TARGET penstock_torch_test_header)
    # As the header has.
    target_compile_definitions(${target} PRIVATE FMT_SHARED GTEST_HAS_PTHREAD=1)
    target_compile_options(${target} PRIVATE ${PENSTOCK_QUICK_FLAGS})
    target_precompile_headers(${target} REUSE_FROM penstock_torch_test_header)
  endif()
endfunction()

# penstock_batch_by_layer(<target> [<layer>+<layer>...]...): after its sources are known. A unity build
# then compiles those of one layer together, and those of layers that are given as one, for they include
# the same headers. Names in unnamed namespaces must be unique there.
function(penstock_batch_by_layer target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE -Wshadow)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "^(plan/)?([^/]+)/")
      set(layer "${CMAKE_MATCH_2}")
      set(batch "${layer}")
      foreach(layers IN LISTS ARGN)
        if("+${layers}+" MATCHES "\\+${layer}\\+")
          string(REPLACE "+" "_" batch "${layers}")
        endif()
      endforeach()
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${batch}")
    endif()
  endforeach()
endfunction()
