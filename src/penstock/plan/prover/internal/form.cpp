#include <algorithm>
#include <string_view>

#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

// What is wrong with an action in itself; empty if nothing is. Text never describes such an action,
// but a program can build one.
std::string_view malformation_of(const Action& action) {
  const bool is_container = action.kind == ActionKind::Overlap;
  const auto is_index = [](int index) { return index >= 0 && index <= Action::kLargestIndex; };
  if (is_container && action.parts.empty()) return "a container needs parts";
  if (!is_container && !action.parts.empty()) return "only a container has parts";
  if (is_container && action.stage != Action::kNone) return "a container has no stage of its own";
  if (!is_container && !is_index(action.stage)) return "there is no such stage";
  if (has_microbatch(action.kind)) {
    return is_index(action.microbatch) ? "" : "there is no such microbatch";
  }
  return action.microbatch == Action::kNone ? "" : "this kind has no microbatch";
}

}  // namespace

std::optional<Extent> check_form(const Schedule& schedule, Violations& violations) {
  bool is_well_formed = true;
  Extent extent;
  if (schedule.ranks.empty()) violations.add(Rule::Form, {}, "there are no ranks");
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<Action>& actions = schedule.actions_of(rank);
    bool is_busy = false;
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Action& action = actions[static_cast<std::size_t>(step)];
      if (action.kind == ActionKind::Idle) continue;
      is_busy = true;
      const auto require_well_formed = [&](const Action& part) {
        const std::string_view malformation = malformation_of(part);
        if (malformation.empty()) {
          extent.num_stages = std::max(extent.num_stages, part.stage + 1);
          extent.num_microbatches = std::max(extent.num_microbatches, part.microbatch + 1);
        } else {
          is_well_formed = false;
          violations.add(Rule::Form, {rank, step}, "{}", malformation);
        }
      };
      require_well_formed(action);
      for (const Action& part : action.parts) {
        if (is_compute(part.kind) && part.kind != ActionKind::Overlap) {
          require_well_formed(part);
          continue;
        }
        if (part.kind == ActionKind::Overlap || part.kind == ActionKind::Idle) {
          is_well_formed = false;
        }
        violations.add(Rule::Form, {rank, step}, "a container holds computing actions only, not {}",
                       part.kind == ActionKind::Idle ? "an idle slot" : to_string(part));
      }
    }
    if (!is_busy) violations.add(Rule::Form, {rank, -1}, "has no actions");
  }
  if (!is_well_formed) return std::nullopt;
  return extent;
}

}  // namespace penstock
