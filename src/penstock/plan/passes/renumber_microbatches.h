#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Gives the microbatches other numbers, so that every stage makes its weight gradients (B or W) in
// ascending order, and adds them up as without a pipeline. Who does what when stays as it is: for
// LoopedBFS, microbatch i of m becomes m - 1 - i. The schedule may be lowered or not.
//
// Returns the schedule as it was if no numbering does that: if stages differ in their order, or
// have no weight gradients.
Schedule renumber_microbatches(const Schedule& schedule);

}  // namespace penstock
