#pragma once

#include <bit>
#include <cstddef>
#include <vector>

#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// When each rank wants to be looked at again, and which is first: a tournament, in which a change
// replays one path. Of equal times the lowest rank wins.
class WakeupTree {
 public:
  explicit WakeupTree(int num_ranks)
      : num_leaves_(std::bit_ceil(static_cast<std::size_t>(num_ranks))),
        times_(num_leaves_, kNever),
        winners_(2 * num_leaves_) {
    for (std::size_t leaf = 0; leaf < num_leaves_; ++leaf) winners_[num_leaves_ + leaf] = leaf;
    for (std::size_t node = num_leaves_ - 1; node >= 1; --node) replay(node);
  }

  void set_time(int rank, Duration time) {
    const auto leaf = static_cast<std::size_t>(rank);
    times_[leaf] = time;
    for (std::size_t node = (num_leaves_ + leaf) / 2; node >= 1; node /= 2) replay(node);
  }

  Duration time_of(int rank) const { return times_[static_cast<std::size_t>(rank)]; }
  int first() const { return static_cast<int>(winners_[1]); }  // of one leaf, winners_[1] is that

 private:
  void replay(std::size_t node) {
    const std::size_t left = winners_[2 * node];
    const std::size_t right = winners_[2 * node + 1];
    winners_[node] = times_[right] < times_[left] ? right : left;
  }

  std::size_t num_leaves_;
  std::vector<Duration> times_;
  std::vector<std::size_t> winners_;  // [1] is the root, leaves start at num_leaves_
};

}  // namespace penstock
