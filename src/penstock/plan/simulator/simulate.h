#pragma once

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/timeline.h"

namespace penstock {

// Plays a lowered program: every rank takes its actions in order, each as soon as the rank is free
// and its inputs are there. Linear in the number of actions.
//
// Throws ArgumentError if `program` is not lowered or the costs do not fit it. `program` must be
// valid; a deadlock is reported as ScheduleError.
Timeline simulate(const Schedule& program, const CostModel& costs);

}  // namespace penstock
