#include "penstock/plan/simulator/internal/routes.h"

namespace penstock {

Routes::Routes(const Schedule& program, Extent extent)
    : extent_(extent),
      placement_(placement_of(program, extent.num_stages)),
      activations_(extent),
      gradients_(extent) {
  for (const std::vector<Action>& actions : program.ranks) {
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      for_each_part(actions[static_cast<std::size_t>(step)],
                    [&](const Action& part) { add(part, step); });
    }
  }
}

void Routes::add(const Action& action, int step) {
  const bool has_next = action.stage + 1 < extent_.num_stages;
  const bool has_previous = action.stage > 0;
  switch (action.kind) {
    case ActionKind::Forward:
      if (has_next) activations_.at(action.stage + 1, action.microbatch).made = step;
      break;
    case ActionKind::FullBackward:
    case ActionKind::InputBackward:
      if (has_previous) gradients_.at(action.stage - 1, action.microbatch).made = step;
      break;
    case ActionKind::SendForward:
      if (has_next) activations_.at(action.stage + 1, action.microbatch).sent = step;
      break;
    case ActionKind::SendBackward:
      if (has_previous) gradients_.at(action.stage - 1, action.microbatch).sent = step;
      break;
    case ActionKind::ReceiveForward:
      activations_.at(action.stage, action.microbatch).received = step;
      break;
    case ActionKind::ReceiveBackward:
      gradients_.at(action.stage, action.microbatch).received = step;
      break;
    default:
      break;
  }
}

}  // namespace penstock
