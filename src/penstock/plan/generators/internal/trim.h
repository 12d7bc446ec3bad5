#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

enum class Trim { ToIdle, Away };

// `schedule` without the microbatches from `num_microbatches` on: their actions become idle slots
// or vanish, and a container that loses all parts but one becomes that part. Dependencies never
// cross microbatches, so what was valid stays valid; that is how a schedule defined for many
// microbatches serves a few.
Schedule keep_microbatches(const Schedule& schedule, int num_microbatches, Trim trim);

}  // namespace penstock
