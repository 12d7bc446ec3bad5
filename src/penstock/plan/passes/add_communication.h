#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Adds the sends and receives that carry activations and gradients between ranks.
//
// A send follows the action that computes its value; the matching receive is placed at once, as
// early on the other rank as that rank's own progress allows. Both ends of a channel therefore see
// its messages in one order, and the result completes even when every send waits for its receive.
// Idle slots are dropped, but each still holds its rank up by one round. Throws ScheduleError if
// the compute order cannot run.
Schedule add_communication(const Schedule& schedule);

}  // namespace penstock
