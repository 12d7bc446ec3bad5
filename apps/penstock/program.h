#pragma once

#include <exception>
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

// What an error says, in short.
using Explain = std::string (*)(const std::exception& error);
std::string text_of(const std::exception& error);

// The frame of a program: parses the command line, runs the command it names, and turns every
// error into one line, as `explain` has it. Returns the exit status.
int run_program(int argc, char** argv, std::initializer_list<AddCommand> commands,
                Explain explain = text_of);

}  // namespace penstock
