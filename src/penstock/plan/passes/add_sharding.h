#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

struct ShardingOptions {
  // How many stages of a rank are gathered at a time, counting those about to be used. A container
  // that needs more at once gets them.
  int max_active_stages = 3;
};

// Gathers each stage's parameters (UNSHARD) ahead of their use and releases them (RESHARD) once
// other stages are needed sooner. Idle slots are dropped.
Schedule add_sharding(const Schedule& schedule, const ShardingOptions& options = {});

}  // namespace penstock
