# penstock_join_examples(<target> <example>...): all examples as one program, each in a namespace of its own,
# and under its own name a link to it. What libtorch's headers take, they take once then, and not ten times.
function(penstock_join_examples target)
  set(includes "")
  set(namespaces "")
  set(calls "")
  foreach(example IN LISTS ARGN)
    set(source "${CMAKE_CURRENT_SOURCE_DIR}/${example}.cpp")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    # Out of all namespaces; within one, a header that was included before is empty.
    file(STRINGS "${source}" own_includes REGEX "^#include ")
    list(APPEND includes ${own_includes})
    file(READ "${source}" text)
    # Only a main() outside of namespaces may end without that.
    string(REGEX REPLACE "}\n$" "  return 0;\n}\n" text "${text}")
    string(APPEND namespaces "namespace example_${example} {\n#line 1 \"${source}\"\n${text}}\n")
    string(APPEND calls "  if (name == \"${example}\") return example_${example}::main();\n")
  endforeach()
  list(APPEND includes "#include <filesystem>" "#include <string>")
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT "${target}.cpp" @ONLY CONTENT "@includes@

@namespaces@
int main(int /*count*/, char** arguments) {
  const std::string name = std::filesystem::path(arguments[0]).filename();
@calls@  return 2;
}
")
  add_executable(${target} "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp")
  target_link_libraries(${target} PRIVATE penstock::run)
  foreach(example IN LISTS ARGN)
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND "${CMAKE_COMMAND}" -E create_symlink ${target} ${example} VERBATIM)
  endforeach()
endfunction()
