#include "penstock/plan/generators/internal/trim.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock {
namespace {

Action kept_part(const Action& action, int num_microbatches) {
  if (action.kind != ActionKind::Overlap) {
    return action.microbatch < num_microbatches ? action : Action{};
  }
  std::vector<Action> kept;
  std::copy_if(
      action.parts.begin(), action.parts.end(), std::back_inserter(kept),
      [num_microbatches](const Action& part) { return part.microbatch < num_microbatches; });
  if (kept.empty()) return {};
  if (kept.size() == 1 && action.parts.size() > 1) return kept.front();
  return {.kind = ActionKind::Overlap, .parts = ActionParts(std::move(kept))};
}

}  // namespace

Schedule keep_microbatches(const Schedule& schedule, int num_microbatches, Trim trim) {
  Schedule result;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& kept = result.ranks.emplace_back();
    kept.reserve(actions.size());
    for (const Action& action : actions) {
      Action left = kept_part(action, num_microbatches);
      const bool vanishes =
          trim == Trim::Away && left.kind == ActionKind::Idle && action.kind != ActionKind::Idle;
      if (!vanishes) kept.push_back(std::move(left));
    }
  }
  return result;
}

}  // namespace penstock
