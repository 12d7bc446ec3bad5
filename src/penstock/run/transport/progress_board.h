#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace penstock {

// How far each rank has got in its list. Written by the rank, read by anyone who has to explain a
// wait; of ranks in other processes it holds what was heard last.
class ProgressBoard {
 public:
  explicit ProgressBoard(int num_ranks) : finished_(static_cast<std::size_t>(num_ranks)) {}

  // The number of actions of `rank` that are finished in this step.
  int finished(int rank) const { return at(rank).load(std::memory_order_relaxed); }
  void set_finished(int rank, int num_actions) {
    finished_[static_cast<std::size_t>(rank)].count.store(num_actions, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Count {
    std::atomic<int> count = 0;
  };
  const std::atomic<int>& at(int rank) const {
    return finished_[static_cast<std::size_t>(rank)].count;
  }
  std::vector<Count> finished_;
};

}  // namespace penstock
