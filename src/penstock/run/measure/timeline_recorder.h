#pragma once

#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/timeline.h"
#include "penstock/run/executor/observer.h"

namespace penstock {

// Keeps the clock readings of the last step that finished, and makes the timeline of them that the
// simulator makes of its own: one format for what was predicted and what happened. A step that
// fails leaves nothing.
class TimelineRecorder final : public Observer {
 public:
  void step_begins(const Schedule& program) override;
  void step_ends() override;
  void rank_begins(int rank) override;
  void action_begins(const ActionEvent& event) override;
  void action_ends(const ActionEvent& event) override;

  // The program of that step. Throws ArgumentError if there was none.
  const Schedule& program() const;

  // What happened in it. The sizes in `costs`, such as those a ProfileRecorder has measured, give
  // the memory. Throws ArgumentError if there was none.
  Timeline timeline(const CostModel& costs) const;

  // From the begin of that step to its end, on the thread that called it.
  Duration wall_time() const { return last_.end - last_.begin; }

  // The clock readings of that step as they are, counted from its begin, and zero for ranks of
  // other processes: for whoever puts those of several processes together, for measured_timeline().
  StepClock::time_point begin() const { return last_.begin; }
  const std::vector<std::vector<ActionTime>>& times() const { return last_.times; }

 private:
  static constexpr int kNotHere = -1;

  struct Step {
    Schedule program;
    StepClock::time_point begin;
    StepClock::time_point end;
    std::vector<std::vector<ActionTime>> times;  // each rank writes its own
  };
  bool has_finished() const;

  Step last_;                   // that finished
  Step now_;                    // running, or failed
  std::vector<int> num_ended_;  // actions of each rank that are over; kNotHere: of other processes
};

// The timeline of clock readings of all ranks, as TimelineRecorder makes it.
Timeline measured_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                           const CostModel& costs);

}  // namespace penstock
