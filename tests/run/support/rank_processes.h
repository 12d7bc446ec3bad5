#pragma once

#include <functional>

#include "penstock/run/world/world_options.h"

namespace penstock {

// Runs `rank` once per rank, each in a process of its own: this program again, told to run the
// current test up to this call and to leave there. So whatever comes before the call in the test is
// done by every process. Returns in the first process only, when all have ended; a rank that fails
// an expectation, throws, or is not done after two minutes fails the test, with its output.
void run_in_processes(int num_ranks, const std::function<void(const WorldOptions& world)>& rank);

// The same in copies of this process, which takes milliseconds instead of a second. For test
// programs that never run a backward: libtorch refuses to in the copy of a process that has.
void run_in_forks(int num_ranks, const std::function<void(const WorldOptions& world)>& rank);

}  // namespace penstock
