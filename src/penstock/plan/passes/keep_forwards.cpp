#include "penstock/plan/passes/keep_forwards.h"

namespace penstock {

Schedule keep_forwards(const Schedule& schedule) {
  Schedule forwards;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& list = forwards.ranks.emplace_back();
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.kind == ActionKind::Forward) list.push_back(part);
      });
    }
  }
  return forwards;
}

}  // namespace penstock
