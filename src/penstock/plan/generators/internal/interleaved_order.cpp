#include "penstock/plan/generators/internal/interleaved_order.h"

#include <algorithm>

namespace penstock {

InterleavedOrder::InterleavedOrder(const ScheduleShape& shape) : shape_(shape) {
  const int num_rounds = std::max(1, shape.num_microbatches / shape.num_ranks);
  const int smallest_round = shape.num_microbatches / num_rounds;
  const int num_larger = shape.num_microbatches % num_rounds;
  largest_round_ = smallest_round + (num_larger > 0 ? 1 : 0);

  units_.reserve(static_cast<std::size_t>(shape.num_microbatches) *
                 static_cast<std::size_t>(shape.stages_per_rank));
  int first = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const int end = first + smallest_round + (round < num_larger ? 1 : 0);
    for (int local_stage = 0; local_stage < shape.stages_per_rank; ++local_stage) {
      for (int microbatch = first; microbatch < end; ++microbatch) {
        units_.push_back({local_stage, microbatch});
      }
    }
    first = end;
  }
}

InterleavedOrder::Entry InterleavedOrder::forward(int rank, int index) const {
  const Unit& unit = units_[static_cast<std::size_t>(index)];
  return {unit.local_stage * shape_.num_ranks + rank, unit.microbatch};
}

InterleavedOrder::Entry InterleavedOrder::backward(int rank, int index) const {
  const Unit& unit = units_[static_cast<std::size_t>(index)];
  const int local_stage = shape_.stages_per_rank - 1 - unit.local_stage;
  return {local_stage * shape_.num_ranks + rank, unit.microbatch};
}

int InterleavedOrder::num_warmup(int rank, int lead_per_rank) const {
  const int ranks_below = shape_.num_ranks - 1 - rank;
  return std::min(size(),
                  (shape_.stages_per_rank - 1) * largest_round_ + lead_per_rank * ranks_below);
}

}  // namespace penstock
