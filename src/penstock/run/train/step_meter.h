#pragma once

#include <vector>

#include "penstock/plan/simulator/cost_model.h"
#include "penstock/run/executor/observer.h"

namespace penstock {

// Measures how long each step takes and how much of that the ranks of this process have nothing to
// do.
class StepMeter final : public Observer {
 public:
  void step_begins(const Schedule& program) override;
  void action_begins(const ActionEvent& event) override;
  void action_ends(const ActionEvent& event) override;
  void step_ends() override;

  // Of the last step: the share of the ranks' time that is not work, from its begin until the last
  // of them is done; and that time.
  double bubble() const { return bubble_; }
  Duration makespan() const { return makespan_; }

  // Of all training steps so far; zero before the first.
  Duration median_makespan() const;

 private:
  struct Rank {
    bool is_here = false;
    Duration busy{};
    StepClock::time_point action_begin;
    StepClock::time_point end;
  };

  StepClock::time_point begin_;
  std::vector<Rank> ranks_;  // each written by its own thread
  double bubble_ = 0;
  Duration makespan_{};
  std::vector<Duration> makespans_;
};

}  // namespace penstock
