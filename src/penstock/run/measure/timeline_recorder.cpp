#include "penstock/run/measure/timeline_recorder.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/microbatch_grid.h"

namespace penstock {
namespace {

ActionTime& time_of(std::vector<std::vector<ActionTime>>& times, int rank, int step) {
  return times[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
}

// Visits every send or receive of the program with its time.
template <typename Visit>
void for_each_transfer(const Schedule& program, std::vector<std::vector<ActionTime>>& times,
                       const Visit& visit) {
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const std::vector<Action>& actions = program.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      visit(actions[static_cast<std::size_t>(step)], time_of(times, rank, step));
    }
  }
}

// A receive is over when its value arrives, and between threads that is when the send is over.
void end_receives_with_their_sends(const Schedule& program,
                                   std::vector<std::vector<ActionTime>>& times) {
  const Extent extent = extent_of(program);
  MicrobatchGrid<Duration> activations(extent);
  MicrobatchGrid<Duration> gradients(extent);
  for_each_transfer(program, times, [&](const Action& action, const ActionTime& time) {
    if (action.kind == ActionKind::SendForward) {
      activations.at(action.stage + 1, action.microbatch) = time.end;
    } else if (action.kind == ActionKind::SendBackward) {
      gradients.at(action.stage - 1, action.microbatch) = time.end;
    }
  });
  for_each_transfer(program, times, [&](const Action& action, ActionTime& time) {
    if (!is_receive(action.kind)) return;
    const auto& arrivals = action.kind == ActionKind::ReceiveForward ? activations : gradients;
    time.end = std::max(time.end, arrivals.at(action.stage, action.microbatch));
  });
}

}  // namespace

void TimelineRecorder::step_begins(const Schedule& program) {
  if (!(program_ == program)) program_ = program;
  times_.resize(program.ranks.size());
  for (std::size_t rank = 0; rank < times_.size(); ++rank) {
    times_[rank].assign(program.ranks[rank].size(), {});
  }
  begin_ = StepClock::now();
}

void TimelineRecorder::step_ends() {
  end_ = StepClock::now();
}

void TimelineRecorder::action_begins(const ActionEvent& event) {
  if (!event.is_part) time_of(times_, event.rank, event.step).start = event.time - begin_;
}

void TimelineRecorder::action_ends(const ActionEvent& event) {
  if (!event.is_part) time_of(times_, event.rank, event.step).end = event.time - begin_;
}

const Schedule& TimelineRecorder::program() const {
  if (program_.ranks.empty()) throw ArgumentError("no step was recorded yet");
  return program_;
}

Timeline TimelineRecorder::timeline(const CostModel& costs) const {
  return measured_timeline(program(), times_, costs);
}

Timeline measured_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                           const CostModel& costs) {
  end_receives_with_their_sends(program, times);
  return make_timeline(program, std::move(times), costs);
}

}  // namespace penstock
