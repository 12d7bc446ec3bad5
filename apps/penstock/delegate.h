#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace penstock {

// Adds the commands of `penstock-run`, the program beside this one that is linked with libtorch.
// They hand their whole command line over to it. Throws Error if it is not there.
void add_delegated_commands(CLI::App& program, Answer& answer);

}  // namespace penstock
