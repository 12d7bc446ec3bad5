#include "penstock/plan/generators/internal/deferred_weights.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {
namespace {

Schedule make_zb_h(std::string_view name, const ScheduleShape& requested, DeferredWeights options) {
  const ScheduleShape shape = resolve_shape(name, requested);
  const InterleavedOrder order(shape);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ActionList list;
    append_deferred_weights(order, rank, options, /*warmup_idle=*/0, list);
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace

// ZB-H1 (arXiv 2401.10241), p = 3, m = 4. As many forwards in flight as 1F1B; weight gradients
// fill the slots in which 1F1B waits.
//   rank 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//   rank 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
Schedule make_zb_h1(const ScheduleShape& shape) {
  return make_zb_h("ZB-H1", shape, {.lead_per_rank = 1, .lag_per_rank = 1});
}

// ZB-H2 (arXiv 2401.10241), p = 3, m = 6. Twice the forwards in flight: once a rank has started it
// never waits, when F, I and W take equally long.
//   rank 0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 ...
//   rank 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 ...
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 ...
Schedule make_zb_h2(const ScheduleShape& shape) {
  return make_zb_h("ZB-H2", shape, {.lead_per_rank = 2, .lag_per_rank = 2});
}

}  // namespace penstock
