#pragma once

#include <vector>

#include "penstock/plan/generators/shape.h"

namespace penstock {

// The order in which every rank of an interleaved schedule takes its stages and microbatches.
//
// Microbatches come in rounds of about p. Within a round a rank runs its first local stage on all
// microbatches of the round, then its second, and so on; backwards visit the stages in reverse.
// All ranks share one order: entry k of one rank feeds entry k of the next.
class InterleavedOrder {
 public:
  explicit InterleavedOrder(const ScheduleShape& shape);

  struct Entry {
    int stage;
    int microbatch;
  };

  int size() const { return static_cast<int>(units_.size()); }
  Entry forward(int rank, int index) const;
  Entry backward(int rank, int index) const;

  // Forwards a rank runs before its first (forward, backward) pair: enough to carry the largest
  // round to the rank's last stage, plus `lead_per_rank` for each rank below it.
  int num_warmup(int rank, int lead_per_rank) const;

 private:
  struct Unit {
    int local_stage;  // counted on the rank: stage local_stage * p + rank
    int microbatch;
  };

  ScheduleShape shape_;
  int largest_round_ = 0;
  std::vector<Unit> units_;
};

}  // namespace penstock
