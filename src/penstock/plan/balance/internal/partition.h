#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// What is not cut.
struct Unit {
  Duration time{};
  std::int64_t bytes = 0;
};

// The smallest limit for which `units` can be cut into `num_parts` parts. 1 <= num_parts <= units.
std::int64_t smallest_largest_bytes(const std::vector<Unit>& units, int num_parts);

// Cuts `units` into `num_parts` parts of at least one unit within `limit_bytes`: the slowest part
// is as fast as possible, then the sum of squared times as small as possible, then the cuts are as
// far to the front as possible, the last one first. Returns the cuts with both ends: part k is
// [cuts[k], cuts[k + 1]). Such a cut must exist. Takes O(parts * units * log units).
std::vector<int> partition(const std::vector<Unit>& units, int num_parts, std::int64_t limit_bytes);

}  // namespace penstock
