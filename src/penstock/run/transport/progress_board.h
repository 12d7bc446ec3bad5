#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace penstock {

// How far each rank of this process has got in its list. Written by the rank, read by anyone who
// has to explain a wait.
class ProgressBoard {
 public:
  static constexpr int kUnknown = -1;

  explicit ProgressBoard(int num_ranks) : ranks_(static_cast<std::size_t>(num_ranks)) {}

  // The number of actions of `rank` that are finished in this step; kUnknown of another process.
  int finished(int rank) const { return at(rank).finished.load(std::memory_order_relaxed); }
  void set_finished(int rank, int num_actions) {
    at(rank).finished.store(num_actions, std::memory_order_relaxed);
  }

  // Whether the rank waits for another one, to go on with the action after those.
  bool is_waiting(int rank) const { return at(rank).is_waiting.load(std::memory_order_relaxed); }
  void set_waiting(int rank, bool is_waiting) {
    at(rank).is_waiting.store(is_waiting, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Progress {
    std::atomic<int> finished = kUnknown;
    std::atomic<bool> is_waiting = false;
  };
  Progress& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Progress& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Progress> ranks_;
};

}  // namespace penstock
