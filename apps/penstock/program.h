#pragma once

#include <initializer_list>
#include <string>

#include <CLI/CLI.hpp>

#include "commands.h"

namespace penstock {

using AddCommand = void (*)(CLI::App& program, Answer& answer);

// The frame of a program: parses the command line, runs the command it names, and turns every
// error into one line. Returns the exit status.
int run_program(int argc, char** argv, std::initializer_list<AddCommand> commands);

}  // namespace penstock
