#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Adds each stage's REDUCE_GRAD right after the action that completes its last microbatch. Idle
// slots are dropped.
Schedule add_gradient_reduction(const Schedule& schedule);

}  // namespace penstock
