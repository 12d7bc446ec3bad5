#include <algorithm>

#include "penstock/base/assert.h"
#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/internal/trim.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {
namespace {

// One of the two stages of a rank, with the next microbatch of each kind.
struct ZbvStage {
  int stage;
  int next_forward = 0;
  int next_input_backward = 0;
  int next_weight_backward = 0;
};

class ZbvRank {
 public:
  ZbvRank(int rank, int num_ranks, int num_microbatches)
      : rank_(rank),
        num_ranks_(num_ranks),
        num_microbatches_(num_microbatches),
        down_{.stage = rank},
        up_{.stage = 2 * num_ranks - 1 - rank} {}

  std::vector<Action> order() {
    list_.reserve(6 * static_cast<std::size_t>(num_microbatches_) +
                  static_cast<std::size_t>(rank_));
    list_.idle(rank_);
    warm_up();
    while (up_.next_forward < down_.next_forward || down_.next_forward < num_microbatches_) {
      if (down_.next_forward < num_microbatches_) forward(down_);
      backward(down_);
      forward(up_);
      backward(up_);
    }
    cool_down();
    return list_.take();
  }

 private:
  void warm_up() {
    for (int i = 0; i < 2 * (num_ranks_ - rank_) - 1; ++i) forward(down_);
    for (int i = 0; i < rank_; ++i) {
      forward(up_);
      forward(down_);
    }
    for (int i = 0; i < num_ranks_ - rank_; ++i) {
      forward(up_);
      backward(up_);
    }
  }

  // The gradients that other ranks wait for come first; weight gradients fill the end.
  void cool_down() {
    for (int i = 0; i < rank_; ++i) {
      input_backward(down_);
      input_backward(up_);
    }
    for (int i = 0; i < num_ranks_ - rank_; ++i) {
      input_backward(down_);
      weight_backward(down_);
    }
    while (up_.next_weight_backward < up_.next_input_backward) weight_backward(up_);
    while (down_.next_weight_backward < down_.next_input_backward) weight_backward(down_);
    for (const ZbvStage& local : {down_, up_}) {
      PENSTOCK_ASSERT(local.next_forward == num_microbatches_ &&
                          local.next_weight_backward == num_microbatches_,
                      "the phases of ZBV add up to every microbatch once");
    }
  }

  void forward(ZbvStage& local) { list_.forward(local.stage, local.next_forward++); }
  void input_backward(ZbvStage& local) {
    list_.input_backward(local.stage, local.next_input_backward++);
  }
  void weight_backward(ZbvStage& local) {
    list_.weight_backward(local.stage, local.next_weight_backward++);
  }
  void backward(ZbvStage& local) {
    input_backward(local);
    weight_backward(local);
  }

  int rank_;
  int num_ranks_;
  int num_microbatches_;
  ZbvStage down_;  // the stage on the way down the ranks
  ZbvStage up_;    // the stage on the way back
  ActionList list_;
};

}  // namespace

// ZB-V (arXiv 2401.10241), p = 2, m = 4. Rank r holds stages r and 2p - 1 - r.
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 ...
//   rank 1 | .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 ...
Schedule make_zbv_zero_bubble(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("ZBVZeroBubble", requested);
  // Defined for this many microbatches or more; a smaller number is cut out of that.
  const int num_needed = std::max(2 * shape.num_ranks - 1, shape.num_microbatches);
  resolve_shape("ZBVZeroBubble", {shape.num_ranks, num_needed, shape.stages_per_rank});
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    schedule.ranks.push_back(ZbvRank(rank, shape.num_ranks, num_needed).order());
  }
  if (num_needed == shape.num_microbatches) return schedule;
  return keep_microbatches(schedule, shape.num_microbatches, Trim::ToIdle);
}

}  // namespace penstock
