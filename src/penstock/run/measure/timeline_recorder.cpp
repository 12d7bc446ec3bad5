#include "penstock/run/measure/timeline_recorder.h"

#include <algorithm>
#include <utility>

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
  if (!(now_.program == program)) now_.program = program;
  now_.times.resize(program.ranks.size());
  for (std::size_t rank = 0; rank < now_.times.size(); ++rank) {
    now_.times[rank].assign(program.ranks[rank].size(), {});
  }
  num_ended_.assign(program.ranks.size(), kNotHere);
  now_.begin = StepClock::now();
}

void TimelineRecorder::step_ends() {
  now_.end = StepClock::now();
  if (has_finished()) std::swap(last_, now_);
}

// Whether the ranks of this process have come to the ends of their lists.
bool TimelineRecorder::has_finished() const {
  bool is_one_here = false;
  for (std::size_t rank = 0; rank < num_ended_.size(); ++rank) {
    if (num_ended_[rank] == kNotHere) continue;
    is_one_here = true;
    if (num_ended_[rank] != static_cast<int>(now_.times[rank].size())) return false;
  }
  return is_one_here;
}

void TimelineRecorder::rank_begins(int rank) {
  num_ended_[static_cast<std::size_t>(rank)] = 0;
}

void TimelineRecorder::action_begins(const ActionEvent& event) {
  if (!event.is_part) time_of(now_.times, event.rank, event.step).start = event.time - now_.begin;
}

void TimelineRecorder::action_ends(const ActionEvent& event) {
  if (event.is_part) return;
  time_of(now_.times, event.rank, event.step).end = event.time - now_.begin;
  ++num_ended_[static_cast<std::size_t>(event.rank)];
}

const Schedule& TimelineRecorder::program() const {
  if (last_.program.ranks.empty()) throw ArgumentError("no step was recorded yet");
  return last_.program;
}

Timeline TimelineRecorder::timeline(const CostModel& costs) const {
  return measured_timeline(program(), last_.times, costs);
}

Timeline measured_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                           const CostModel& costs) {
  end_receives_with_their_sends(program, times);
  return make_timeline(program, std::move(times), costs);
}

}  // namespace penstock
