#include <algorithm>

#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {

// 1F1B (PipeDream-flush, arXiv 2006.09503) on p = 3 ranks, m = 4. Rank r warms up with p - 1 - r
// forwards and then alternates.
//   rank 0 | F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
//   rank 1 | .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
//   rank 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
Schedule make_1f1b(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("1F1B", requested);
  const int num_microbatches = shape.num_microbatches;
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const int num_warmup = std::min(num_microbatches, shape.num_ranks - 1 - rank);
    ActionList list;
    for (int forward = 0; forward < num_warmup; ++forward) list.forward(rank, forward);
    for (int backward = 0; backward < num_microbatches; ++backward) {
      const int forward = backward + num_warmup;
      if (forward < num_microbatches) list.forward(rank, forward);
      list.backward(rank, backward);
    }
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace penstock
