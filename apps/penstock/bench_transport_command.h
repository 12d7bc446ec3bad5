#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace penstock {

// Adds `transport` to the command `bench`.
void add_bench_transport_command(CLI::App& bench, Answer& answer);

}  // namespace penstock
