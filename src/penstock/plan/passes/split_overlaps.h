#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Replaces every OVERLAP_F_B by its parts, one after the other. Each part then waits for its own
// input only: the forward of a pair can start, and send, before the gradient for the backward has
// arrived. Idle slots are kept.
Schedule split_overlaps(const Schedule& schedule);

}  // namespace penstock
