#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// The batch of a step, ready for the ranks of this process.
struct ReadyBatch {
  PresplitBatch parts;
  StepOptions options;
  std::vector<double> loss_weights;  // empty if no loss is computed here
  std::uint64_t random_seed = 0;
};

// The batches of a series, two at a time: no rank begins a list before all others have begun the
// one before, because it needs values of all of them. Safe from any thread.
class StepBatches {
 public:
  // `make` is called once per step, in order, by one thread at a time.
  StepBatches(int num_ranks, std::function<ReadyBatch(std::int64_t step)> make)
      : num_ranks_(num_ranks), make_(std::move(make)) {}

  // The batch of a step, which stays until all ranks of this process are done with it. Throws what
  // `make` throws, and StoppedError if it has thrown before.
  const ReadyBatch& batch(std::int64_t step);
  void done(std::int64_t step);

 private:
  struct Slot {
    std::int64_t step = -1;
    int num_users = 0;  // ranks that are not done with it
    ReadyBatch batch;
  };
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step % 2)]; }

  int num_ranks_;
  std::function<ReadyBatch(std::int64_t step)> make_;
  std::mutex mutex_;  // guards what follows
  std::array<Slot, 2> slots_;
  bool has_failed_ = false;
};

}  // namespace penstock
