#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// The forwards of a schedule alone, in their order, as a compute order: what inference runs. The
// schedule may be lowered or not. Idle slots are dropped, and containers opened.
Schedule keep_forwards(const Schedule& schedule);

}  // namespace penstock
