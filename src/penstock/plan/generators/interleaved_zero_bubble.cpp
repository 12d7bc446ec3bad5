#include "penstock/base/assert.h"
#include "penstock/plan/generators/internal/deferred_weights.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/schedule/microbatch_grid.h"

namespace penstock {
namespace {

// Aligns the lists to a common grid: in every step, a rank whose next forward has not been fed by
// an earlier step waits for one step. Backwards do not wait; their slots are not meant as times.
class ForwardAligner {
 public:
  ForwardAligner(const Schedule& schedule, const ScheduleShape& shape)
      : schedule_(schedule),
        is_finished_({shape.num_stages(), shape.num_microbatches}),
        next_(schedule.ranks.size()) {}

  Schedule align() {
    Schedule aligned;
    aligned.ranks.resize(schedule_.ranks.size());
    while (true) {
      bool any_left = false;
      bool any_moved = false;
      forwards_of_step_.clear();
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
        const std::vector<Action>& list = schedule_.actions_of(rank);
        std::size_t& next = next_[static_cast<std::size_t>(rank)];
        if (next == list.size()) continue;
        any_left = true;
        std::vector<Action>& out = aligned.ranks[static_cast<std::size_t>(rank)];
        if (must_wait(list[next])) {
          out.emplace_back();
          continue;
        }
        any_moved = true;
        out.push_back(list[next]);
        if (list[next].kind == ActionKind::Forward) forwards_of_step_.push_back(&list[next]);
        ++next;
      }
      if (!any_left) return aligned;
      PENSTOCK_ASSERT(any_moved, "all ranks take their forwards in one common order");
      for (const Action* forward : forwards_of_step_) {
        is_finished_.at(forward->stage, forward->microbatch) = 1;
      }
    }
  }

 private:
  bool must_wait(const Action& action) const {
    if (action.kind != ActionKind::Forward || action.stage == 0) return false;
    return is_finished_.at(action.stage - 1, action.microbatch) == 0;
  }

  const Schedule& schedule_;
  MicrobatchGrid<char> is_finished_;  // forwards of earlier steps
  std::vector<const Action*> forwards_of_step_;
  std::vector<std::size_t> next_;  // by rank
};

}  // namespace

// Interleaved 1F1B with split backwards, p = 2, v = 2, m = 4:
//   rank 0 | 0F0 0F1 2F0 .   2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 ...
//   rank 1 | .   1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 ...
Schedule make_interleaved_zero_bubble(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("InterleavedZeroBubble", requested);
  const InterleavedOrder order(shape);
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const int ranks_below = shape.num_ranks - 1 - rank;
    ActionList list;
    list.idle(rank);
    append_deferred_weights(order, rank, {}, ranks_below, list);
    schedule.ranks.push_back(list.take());
  }
  return ForwardAligner(schedule, shape).align();
}

}  // namespace penstock
