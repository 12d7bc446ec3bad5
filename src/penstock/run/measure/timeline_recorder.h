#pragma once

#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/timeline.h"
#include "penstock/run/executor/observer.h"

namespace penstock {

// Keeps the clock readings of the last step, and makes the timeline of them that the simulator
// makes of its own: one format for what was predicted and what happened.
class TimelineRecorder final : public Observer {
 public:
  void step_begins(const Schedule& program) override;
  void step_ends() override;
  void action_begins(const ActionEvent& event) override;
  void action_ends(const ActionEvent& event) override;

  // The program of the last step. Throws ArgumentError if there was none.
  const Schedule& program() const;

  // What happened in the last step that finished. The sizes in `costs`, such as those a
  // ProfileRecorder has measured, give the memory. Throws ArgumentError if there was none.
  Timeline timeline(const CostModel& costs) const;

  // From the begin of that step to its end, on the thread that called it.
  Duration wall_time() const { return end_ - begin_; }

  // The clock readings of that step as they are, counted from its begin, and zero for ranks of
  // other processes: for whoever puts those of several processes together, for measured_timeline().
  StepClock::time_point begin() const { return begin_; }
  const std::vector<std::vector<ActionTime>>& times() const { return times_; }

 private:
  Schedule program_;
  StepClock::time_point begin_;
  StepClock::time_point end_;
  std::vector<std::vector<ActionTime>> times_;  // each rank writes its own
};

// The timeline of clock readings of all ranks, as TimelineRecorder makes it.
Timeline measured_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                           const CostModel& costs);

}  // namespace penstock
