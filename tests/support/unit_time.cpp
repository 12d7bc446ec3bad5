#include "tests/support/unit_time.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "penstock/plan/schedule/microbatch_grid.h"

namespace penstock::testing {
namespace {

constexpr int kNever = -1;

class UnitTimeRun {
 public:
  explicit UnitTimeRun(const Schedule& order)
      : order_(order),
        extent_(extent_of(order)),
        forward_end_(extent_, kNever),
        gradient_end_(extent_, kNever),
        next_(order.ranks.size()),
        start_(order.ranks.size(), kNever),
        end_(order.ranks.size()),
        work_(order.ranks.size()) {}

  UnitTimes run() {
    bool progresses = true;
    while (progresses) {
      progresses = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < order_.ranks[rank].size() && try_next(rank)) progresses = true;
      }
    }
    UnitTimes times;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < order_.ranks[rank].size()) {
        throw std::invalid_argument("the order cannot run to its end");
      }
      times.makespan = std::max(times.makespan, end_[rank]);
      times.idle_within.push_back(end_[rank] - start_[rank] - work_[rank]);
    }
    return times;
  }

 private:
  bool try_next(std::size_t rank) {
    const Action& action = order_.ranks[rank][next_[rank]];
    int start = end_[rank];
    bool is_ready = true;
    for_each_part(action, [&](const Action& part) {
      const int input_end = input_end_of(part);
      is_ready = is_ready && input_end != kNever;
      start = std::max(start, input_end);
    });
    if (!is_ready) return false;
    ++next_[rank];
    if (action.kind == ActionKind::Idle) return true;
    if (start_[rank] == kNever) start_[rank] = start;
    int time = start;
    for_each_part(action, [&](const Action& part) {
      const int duration = part.kind == ActionKind::FullBackward ? 2 : 1;
      time += duration;
      work_[rank] += duration;
      if (part.kind == ActionKind::Forward) forward_end_.at(part.stage, part.microbatch) = time;
      if (makes_input_gradient(part.kind)) gradient_end_.at(part.stage, part.microbatch) = time;
    });
    end_[rank] = time;
    return true;
  }

  // When the input of `part` is there; 0 if it needs none from another action.
  int input_end_of(const Action& part) const {
    if (part.kind == ActionKind::Forward && part.stage > 0) {
      return forward_end_.at(part.stage - 1, part.microbatch);
    }
    if (makes_input_gradient(part.kind)) {
      return part.stage + 1 < extent_.num_stages ? gradient_end_.at(part.stage + 1, part.microbatch)
                                                 : forward_end_.at(part.stage, part.microbatch);
    }
    return 0;
  }

  const Schedule& order_;
  Extent extent_;
  MicrobatchGrid<int> forward_end_;
  MicrobatchGrid<int> gradient_end_;
  std::vector<std::size_t> next_;  // by rank, like the rest
  std::vector<int> start_;
  std::vector<int> end_;
  std::vector<int> work_;
};

}  // namespace

UnitTimes run_in_unit_time(const Schedule& order) {
  return UnitTimeRun(order).run();
}

}  // namespace penstock::testing
