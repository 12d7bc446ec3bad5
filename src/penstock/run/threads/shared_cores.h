#pragma once

#include <span>

namespace penstock {

// How many of `processes`, by their ids, may run on a core that the calling thread may run on.
// Those that cannot be asked are counted.
int num_sharing_cores(std::span<const int> processes);

}  // namespace penstock
