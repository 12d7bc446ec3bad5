#pragma once

#include <optional>

#include "penstock/plan/schedule/schedule.h"

namespace penstock::testing {

// How many steps torch.distributed.pipelining's communication simulator counts for a schedule of
// F, B, I, W, sends and receives; nothing if it gets stuck. In a step every rank tries its next
// action, in rank order; the ranks that could not run try once more at its end.
//
// Independent of the prover, and of the reference a second opinion on it.
std::optional<int> simulated_steps(const Schedule& schedule);

}  // namespace penstock::testing
