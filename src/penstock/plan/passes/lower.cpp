#include "penstock/plan/passes/lower.h"

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/plan/passes/add_communication.h"
#include "penstock/plan/passes/add_gradient_reduction.h"
#include "penstock/plan/passes/merge_backwards.h"
#include "penstock/plan/passes/split_overlaps.h"
#include "penstock/plan/prover/check.h"

namespace penstock {
namespace {

void require_compute_order(const Schedule& order) {
  const Position lowered = first_lowered_action(order);
  if (lowered.exists()) {
    throw ArgumentError(fmt::format(
        "rank {}, step {} ({}): the schedule is lowered already; a compute order has only F, B, "
        "I, W and OVERLAP_F_B",
        lowered.rank, lowered.step, to_string(action_at(order, lowered))));
  }
}

// The passes that replace computing actions by others.
Schedule change_order(const Schedule& order, const LowerOptions& options) {
  Schedule changed = options.split_overlaps ? split_overlaps(order) : order;
  if (options.backwards == Backwards::Merged) changed = merge_backwards(changed);
  if (options.backwards == Backwards::Split) changed = split_backwards(changed);
  return changed;
}

// The passes that add actions, each with its check; the last check is of everything.
Schedule add_actions(const Schedule& order, const LowerOptions& options) {
  Schedule program = options.sharding
                         ? add_sharding(order, {.max_active_stages = options.max_active_stages})
                         : order;
  require_valid(program, {.rules = {Rule::Sharding}});

  program = add_gradient_reduction(program);
  require_valid(program, {.rules = {Rule::Reduction}});

  program = add_communication(program);
  require_valid(program);
  PENSTOCK_ASSERT(have_same_compute_order(order, program), "passes only add actions");
  return program;
}

}  // namespace

Schedule lower(const Schedule& order, const LowerOptions& options) {
  require_compute_order(order);
  require_valid(order, {.rules = {Rule::Form}});  // then the passes can index by stage
  try {
    const bool keeps_order = options.backwards == Backwards::AsGiven && !options.split_overlaps;
    if (keeps_order) return add_actions(order, options);
    return add_actions(change_order(order, options), options);
  } catch (const ScheduleError&) {
    // The program holds all that the order holds, so a fault of the order is a fault of the
    // program. It is told in terms of the order, which the caller knows.
    require_valid(order);
    throw;
  }
}

}  // namespace penstock
