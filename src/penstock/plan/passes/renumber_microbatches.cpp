#include "penstock/plan/passes/renumber_microbatches.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

// By stage: the microbatches in the order of their weight gradients.
std::vector<std::vector<int>> weight_gradient_orders(const Schedule& schedule, int num_stages) {
  std::vector<std::vector<int>> orders(static_cast<std::size_t>(num_stages));
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (!makes_weight_gradient(part.kind)) return;
        orders[static_cast<std::size_t>(part.stage)].push_back(part.microbatch);
      });
    }
  }
  return orders;
}

// The new number of each microbatch; empty unless `order` has each of them once.
std::vector<int> numbers_from(const std::vector<int>& order, int num_microbatches) {
  if (static_cast<int>(order.size()) != num_microbatches) return {};
  std::vector<int> numbers(order.size(), Action::kNone);
  for (std::size_t index = 0; index < order.size(); ++index) {
    numbers[static_cast<std::size_t>(order[index])] = static_cast<int>(index);
  }
  if (std::find(numbers.begin(), numbers.end(), Action::kNone) != numbers.end()) return {};
  return numbers;
}

Action renumbered(Action action, const std::vector<int>& numbers) {
  if (action.kind == ActionKind::Overlap) {
    std::vector<Action> parts;
    parts.reserve(action.parts.size());
    for (const Action& part : action.parts) parts.push_back(renumbered(part, numbers));
    action.parts = ActionParts(std::move(parts));
  } else if (has_microbatch(action.kind)) {
    action.microbatch = numbers[static_cast<std::size_t>(action.microbatch)];
  }
  return action;
}

}  // namespace

Schedule renumber_microbatches(const Schedule& schedule) {
  const Extent extent = extent_of(schedule);
  const auto orders = weight_gradient_orders(schedule, extent.num_stages);
  if (orders.empty()) return schedule;
  for (const std::vector<int>& order : orders) {
    if (order != orders.front()) return schedule;
  }
  const std::vector<int> numbers = numbers_from(orders.front(), extent.num_microbatches);
  if (numbers.empty()) return schedule;
  Schedule result = schedule;
  for (std::vector<Action>& actions : result.ranks) {
    for (Action& action : actions) action = renumbered(std::move(action), numbers);
  }
  return result;
}

}  // namespace penstock
