#pragma once

#include <chrono>
#include <cstdint>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// One clock for all ranks of a process.
using StepClock = std::chrono::steady_clock;

// An action, or a part of a container, at the moment it begins or ends.
struct ActionEvent {
  int rank = 0;
  int step = 0;  // position in the rank's list
  const Action& action;
  bool is_part = false;  // inside of the container that is at `step`
  StepClock::time_point time;
  StepClock::time_point begin;  // the same, or at the end, when it began
  // At the end of F, B and I: the size of what the action hands to the neighbouring stage.
  std::int64_t message_bytes = 0;
};

// Watches a pipeline at work.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  Observer(Observer&&) = delete;
  Observer& operator=(Observer&&) = delete;
  virtual ~Observer() = default;

  // On the thread that calls step() or eval(), before the first and after the last rank has worked;
  // after a failure too. Of a series of steps, once for all of them.
  virtual void step_begins(const Schedule& /*program*/) {}
  virtual void step_ends() {}

  // The rest is called on the thread of the rank it is about, for several ranks at a time. Events
  // of parts come on the thread that runs the part: if a custom function runs the parts of a
  // container on several threads, those of one rank come at the same time, too.
  virtual void rank_begins(int /*rank*/) {}
  virtual void rank_ends(int /*rank*/) {}

  // A computing action begins when its inputs are there, not when the rank starts to wait.
  virtual void action_begins(const ActionEvent& /*event*/) {}
  virtual void action_ends(const ActionEvent& /*event*/) {}
};

}  // namespace penstock
