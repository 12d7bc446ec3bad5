#include "penstock/plan/passes/merge_backwards.h"

namespace penstock {
namespace {

bool completes(const Action& weight, const Action& input) {
  return input.kind == ActionKind::InputBackward && weight.kind == ActionKind::WeightBackward &&
         input.stage == weight.stage && input.microbatch == weight.microbatch;
}

}  // namespace

Schedule merge_backwards(const Schedule& schedule) {
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& list = result.ranks.emplace_back();
    list.reserve(actions.size());
    for (const Action& action : actions) {
      if (action.kind == ActionKind::Idle) continue;
      if (!list.empty() && completes(action, list.back())) {
        list.back().kind = ActionKind::FullBackward;
      } else {
        list.push_back(action);
      }
    }
  }
  return result;
}

Schedule split_backwards(const Schedule& schedule) {
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& list = result.ranks.emplace_back();
    list.reserve(actions.size() * 2);
    for (const Action& action : actions) {
      if (action.kind == ActionKind::Idle) continue;
      list.push_back(action);
      if (action.kind != ActionKind::FullBackward) continue;
      list.back().kind = ActionKind::InputBackward;
      list.push_back(action);
      list.back().kind = ActionKind::WeightBackward;
    }
  }
  return result;
}

}  // namespace penstock
