#pragma once

#include <initializer_list>
#include <string>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "penstock/base/error.h"

namespace penstock {

// The question was right, but what it asked for broke down on the way: exit status 1.
class FailedRun : public Error {
 public:
  using Error::Error;
};

using AddCommand = void (*)(CLI::App& program, Answer& answer);

// The frame of a program: parses the command line, runs the command it names, and turns every
// error into one line. Returns the exit status.
int run_program(int argc, char** argv, std::initializer_list<AddCommand> commands);

}  // namespace penstock
