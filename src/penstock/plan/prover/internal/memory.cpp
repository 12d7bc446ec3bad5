#include <algorithm>

#include "penstock/plan/prover/internal/rules.h"

namespace penstock {

std::vector<int> peak_activations(const ActionIndex& index) {
  const Schedule& schedule = index.schedule();
  std::vector<int> peaks;
  peaks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    int live = 0;
    int peak = 0;
    for (const Action& action : actions) {
      if (!is_compute(action.kind)) continue;
      // The parts of a container may overlap, so what one releases does not make room for another.
      for_each_part(action, [&](const Action& part) {
        if (part.kind == ActionKind::Forward) peak = std::max(peak, ++live);
      });
      for_each_part(action, [&](const Action& part) {
        if (makes_weight_gradient(part.kind)) --live;
      });
      if (index.is_forward_only()) live = 0;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace penstock
