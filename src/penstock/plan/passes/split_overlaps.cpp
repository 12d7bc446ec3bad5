#include "penstock/plan/passes/split_overlaps.h"

namespace penstock {

Schedule split_overlaps(const Schedule& schedule) {
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& list = result.ranks.emplace_back();
    list.reserve(actions.size());
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) { list.push_back(part); });
    }
  }
  return result;
}

}  // namespace penstock
