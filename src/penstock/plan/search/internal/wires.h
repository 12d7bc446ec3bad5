#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// The wires between neighbouring ranks, one each way. A wire takes its messages in the order in
// which its rank sends them, one at a time.
class Wires {
 public:
  explicit Wires(int num_ranks) : free_(2 * static_cast<std::size_t>(num_ranks)) {}

  void clear() { std::fill(free_.begin(), free_.end(), Duration::zero()); }

  // When a value computed at `time` arrives.
  Duration send(int from_rank, int to_rank, Duration time, const Hop& hop) {
    if (from_rank == to_rank) return time;
    Duration& free = free_[2 * static_cast<std::size_t>(from_rank) + (to_rank > from_rank ? 1 : 0)];
    free = std::max(free, time) + hop.wire;
    return free + hop.latency;
  }

 private:
  std::vector<Duration> free_;
};

}  // namespace penstock
