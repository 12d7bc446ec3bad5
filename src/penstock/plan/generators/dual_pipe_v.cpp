#include <algorithm>
#include <deque>

#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/internal/trim.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {
namespace {

struct DualPipeVStage {
  int stage;
  int next_forward = 0;
  int next_backward = 0;  // full or input only
};

class DualPipeVRank {
 public:
  DualPipeVRank(int rank, int num_ranks, int num_microbatches)
      : ranks_above_(rank),
        ranks_below_(num_ranks - 1 - rank),
        num_pairs_(num_microbatches - 2 * num_ranks + rank + 1),
        down_{.stage = rank},
        up_{.stage = 2 * num_ranks - 1 - rank} {}

  std::vector<Action> order() {
    warm_up();
    for (int pair = 0; pair < num_pairs_; ++pair) {
      // The last rank holds both sides of the turn: its first backward has no forward to hide in.
      if (pair == 0 && ranks_below_ == 0) {
        forward(down_);
        backward(up_);
      } else {
        overlap(down_, up_);
      }
      overlap(up_, down_);
    }
    for (int i = 0; i < ranks_below_; ++i) {
      backward(up_);
      overlap(up_, down_);
    }
    cool_down();
    return list_.take();
  }

 private:
  void warm_up() {
    for (int i = 0; i < 2 * ranks_below_; ++i) forward(down_);
    for (int i = 0; i < ranks_above_ + 1; ++i) {
      forward(down_);
      forward(up_);
    }
    for (int i = 0; i < ranks_below_; ++i) {
      input_backward(up_);
      oldest_weight_backward();
      forward(up_);
    }
  }

  // Half of the remaining backwards stay whole, the rest is split to leave the pipeline sooner.
  void cool_down() {
    for (int i = 0; i < 2 * (ranks_above_ + 1); ++i) {
      DualPipeVStage& local = i % 2 == 0 ? up_ : down_;
      if (i < ranks_above_ + 1) {
        backward(local);
      } else {
        input_backward(local);
      }
    }
    for (int i = 0; i < ranks_below_; ++i) {
      oldest_weight_backward();
      input_backward(down_);
    }
    for (int i = 0; i < ranks_above_ + 1; ++i) oldest_weight_backward();
  }

  void forward(DualPipeVStage& local) { list_.forward(local.stage, local.next_forward++); }
  void backward(DualPipeVStage& local) { list_.backward(local.stage, local.next_backward++); }
  void input_backward(DualPipeVStage& local) {
    const int microbatch = local.next_backward++;
    list_.input_backward(local.stage, microbatch);
    deferred_.push_back(
        {.stage = local.stage, .kind = ActionKind::WeightBackward, .microbatch = microbatch});
  }
  void oldest_weight_backward() {
    if (deferred_.empty()) return;
    list_.add(deferred_.front());
    deferred_.pop_front();
  }
  void overlap(DualPipeVStage& forwards, DualPipeVStage& backwards) {
    list_.add({.kind = ActionKind::Overlap,
               .parts = {{.stage = forwards.stage,
                          .kind = ActionKind::Forward,
                          .microbatch = forwards.next_forward++},
                         {.stage = backwards.stage,
                          .kind = ActionKind::FullBackward,
                          .microbatch = backwards.next_backward++}}});
  }

  int ranks_above_;
  int ranks_below_;
  int num_pairs_;
  DualPipeVStage down_;          // the stage on the way down the ranks
  DualPipeVStage up_;            // the stage on the way back
  std::deque<Action> deferred_;  // the W of every I so far that has none yet, oldest first
  ActionList list_;
};

}  // namespace

// DualPipeV (DeepSeek's DualPipe, cut in half to a V), p = 2, m = 4; [x y] runs x and y together:
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 [0F3 3B1] [3F2 0B0] 3B2 [3F3 0B1] 3B3 0I2 0W2 0I3 0W3
//   rank 1 | 1F0 2F0 1F1 2F1 1F2 2B0 [2F2 1B0] [1F3 2B1] [2F3 1B1] 2B2 1B2 2I3 1I3 2W3 1W3
Schedule make_dual_pipe_v(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("DualPipeV", requested);
  // Defined for this many microbatches or more; a smaller number is cut out of that.
  const int num_needed = std::max(shape.num_stages(), shape.num_microbatches);
  resolve_shape("DualPipeV", {shape.num_ranks, num_needed, shape.stages_per_rank});
  Schedule schedule;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    schedule.ranks.push_back(DualPipeVRank(rank, shape.num_ranks, num_needed).order());
  }
  if (num_needed == shape.num_microbatches) return schedule;
  return keep_microbatches(schedule, shape.num_microbatches, Trim::Away);
}

}  // namespace penstock
