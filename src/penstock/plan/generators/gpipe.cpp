#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {

// GPipe (arXiv 1811.06965), p = 3 ranks, m = 2:
//   rank 0 | F0 F1 .  .  .  .  B0 B1
//   rank 1 | .  F0 F1 .  .  B0 B1 .
//   rank 2 | .  .  F0 F1 B0 B1 .  .
Schedule make_gpipe(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("GPipe", requested);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ActionList list;
    for (int microbatch = 0; microbatch < shape.num_microbatches; ++microbatch) {
      list.forward(rank, microbatch);
    }
    for (int microbatch = 0; microbatch < shape.num_microbatches; ++microbatch) {
      list.backward(rank, microbatch);
    }
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace penstock
