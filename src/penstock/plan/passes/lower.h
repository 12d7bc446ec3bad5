#pragma once

#include "penstock/plan/passes/add_sharding.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

enum class Backwards {
  AsGiven,
  Merged,  // I followed by its W becomes B
  Split,   // B becomes I and W
};

struct LowerOptions {
  Backwards backwards = Backwards::AsGiven;
  bool split_overlaps = false;  // OVERLAP_F_B becomes its parts, each with its own dependencies
  bool sharding = true;         // UNSHARD and RESHARD; a stage that is not sharded ignores them
  int max_active_stages = ShardingOptions{}.max_active_stages;
};

// Turns a compute order into the program that ranks run. The result is proved: valid, free of
// deadlock under rendezvous, with the compute actions of `order` in their order.
//
// Throws ArgumentError if `order` is lowered already, ScheduleError if it is not valid.
Schedule lower(const Schedule& order, const LowerOptions& options = {});

}  // namespace penstock
