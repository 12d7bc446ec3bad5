#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {

Schedule make_forward_only(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("ForwardOnly", requested);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ActionList list;
    for (int microbatch = 0; microbatch < shape.num_microbatches; ++microbatch) {
      list.forward(rank, microbatch);
    }
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace penstock
