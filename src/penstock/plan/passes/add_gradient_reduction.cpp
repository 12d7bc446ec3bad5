#include "penstock/plan/passes/add_gradient_reduction.h"

namespace penstock {

Schedule add_gradient_reduction(const Schedule& schedule) {
  const Extent extent = extent_of(schedule);
  std::vector<int> num_completed(static_cast<std::size_t>(extent.num_stages));
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& list = result.ranks.emplace_back();
    list.reserve(actions.size() + 8);
    for (const Action& action : actions) {
      if (action.kind == ActionKind::Idle) continue;
      list.push_back(action);
      for_each_part(action, [&](const Action& part) {
        if (!makes_weight_gradient(part.kind)) return;
        int& completed = num_completed[static_cast<std::size_t>(part.stage)];
        if (++completed == extent.num_microbatches) {
          list.push_back({.stage = part.stage, .kind = ActionKind::ReduceGrad});
        }
      });
    }
  }
  return result;
}

}  // namespace penstock
