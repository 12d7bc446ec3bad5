#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

struct ProgramResult {
  int exit_status = -1;  // 128 + the signal, if one ended the program
  std::string output;
  std::string errors;
};

// Runs the penstock program of this build with `arguments` and `input` on its standard input.
ProgramResult run_penstock(const std::vector<std::string>& arguments, std::string_view input = {});

// Runs a command line of /bin/sh in which `penstock` is the program of this build.
ProgramResult run_shell(const std::string& command_line);

}  // namespace penstock::testing
