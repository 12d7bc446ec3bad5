#pragma once

#include <span>

namespace penstock {

// The processes that may run on a core of this one.
struct SharedCores {
  int num_processes = 1;  // itself included
  int place = 0;          // of this one among them
};

// Of `processes`, by their ids, those that may run on a core that the calling thread may run on.
// Those that cannot be asked are counted.
SharedCores shared_cores(std::span<const int> processes);

}  // namespace penstock
