#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {

// Looped breadth-first (arXiv 2211.05953), p = 2, v = 2, m = 2. Rank r holds stages r, r + p, ...;
// backwards run in the reverse order of the forwards.
//   rank 0 | 0F0 0F1 2F0 2F1 .   .   2B1 2B0 0B1 0B0
//   rank 1 | .   1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0
Schedule make_looped_bfs(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("LoopedBFS", requested);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ActionList list;
    list.idle(rank);
    for (int stage = rank; stage < shape.num_stages(); stage += shape.num_ranks) {
      for (int microbatch = 0; microbatch < shape.num_microbatches; ++microbatch) {
        list.forward(stage, microbatch);
      }
    }
    list.idle(2 * (shape.num_ranks - 1 - rank));
    for (int stage = shape.num_stages() - shape.num_ranks + rank; stage >= 0;
         stage -= shape.num_ranks) {
      for (int microbatch = shape.num_microbatches - 1; microbatch >= 0; --microbatch) {
        list.backward(stage, microbatch);
      }
    }
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace penstock
