#include "penstock/run/train/step_meter.h"

#include <algorithm>

namespace penstock {

void StepMeter::step_begins(const Schedule& program) {
  ranks_.assign(program.ranks.size(), {});
  begin_ = StepClock::now();
}

void StepMeter::action_begins(const ActionEvent& event) {
  if (!event.is_part) ranks_[static_cast<std::size_t>(event.rank)].action_begin = event.time;
}

void StepMeter::action_ends(const ActionEvent& event) {
  if (event.is_part) return;
  Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
  rank.is_here = true;
  rank.end = event.time;
  if (is_compute(event.action.kind)) rank.busy += event.time - rank.action_begin;
}

void StepMeter::step_ends() {
  Duration busy{};
  int num_ranks = 0;
  StepClock::time_point end = begin_;
  for (const Rank& rank : ranks_) {
    if (!rank.is_here) continue;
    busy += rank.busy;
    end = std::max(end, rank.end);
    ++num_ranks;
  }
  makespan_ = end - begin_;
  makespans_.push_back(makespan_);
  const double available = static_cast<double>(makespan_.count()) * num_ranks;
  bubble_ = available > 0 ? std::max(0.0, 1 - static_cast<double>(busy.count()) / available) : 0;
}

Duration StepMeter::median_makespan() const {
  if (makespans_.empty()) return {};
  std::vector<Duration> sorted = makespans_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace penstock
