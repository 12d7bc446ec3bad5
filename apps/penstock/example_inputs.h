#pragma once

#include <string>
#include <vector>

#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

// Inputs made up from descriptions such as "4x16", "4x16:int64" or "mask=4x16:bool": random numbers
// for floating types, zeros for all others, which are indices more often than not. "1" alone is one
// dimension of size 1, and "scalar" has none. Throws ArgumentError that quotes a wrong one.
Microbatch make_example_inputs(const std::vector<std::string>& descriptions);

}  // namespace penstock
