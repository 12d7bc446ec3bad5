#include <algorithm>

#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/internal/interleaved_order.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {

// Interleaved 1F1B (arXiv 2104.04473), p = 2, v = 2, m = 4:
//   rank 0 | 0F0 0F1 2F0 2F1 .   .   0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3 ...
//   rank 1 | .   1F0 1F1 .   3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 .   1B2 ...
Schedule make_interleaved_1f1b(const ScheduleShape& requested) {
  constexpr int kLeadPerRank = 2;
  const ScheduleShape shape = resolve_shape("Interleaved1F1B", requested);
  const InterleavedOrder order(shape);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const int num_warmup = order.num_warmup(rank, kLeadPerRank);
    const int ranks_below = shape.num_ranks - 1 - rank;
    ActionList list;
    list.reserve(static_cast<std::size_t>(order.size()) * 2 +
                 static_cast<std::size_t>(shape.num_stages() + 2 * shape.num_ranks + num_warmup));
    list.idle(rank);
    for (int index = 0; index < num_warmup; ++index) {
      const auto [stage, microbatch] = order.forward(rank, index);
      list.forward(stage, microbatch);
    }
    if (num_warmup > 0) {
      // Until the first backward has come back from the last stage.
      list.idle(std::max(0, shape.num_stages() + 2 * ranks_below - num_warmup - rank));
    }
    for (int index = 0; index < order.size(); ++index) {
      if (index + num_warmup < order.size()) {
        const auto [stage, microbatch] = order.forward(rank, index + num_warmup);
        list.forward(stage, microbatch);
      } else {
        list.idle();
      }
      const auto [stage, microbatch] = order.backward(rank, index);
      list.backward(stage, microbatch);
    }
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

}  // namespace penstock
