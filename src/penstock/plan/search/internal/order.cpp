#include "penstock/plan/search/internal/order.h"

#include "penstock/base/assert.h"

namespace penstock {

Order to_order(const SearchProblem& problem, const Schedule& schedule) {
  Order order(problem.ranks.size());
  std::vector<StageCounts> counts(problem.stages.size());
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<Step>& steps = order[static_cast<std::size_t>(rank)];
    for (const Action& action : schedule.actions_of(rank)) {
      if (action.kind == ActionKind::Idle) continue;
      const SearchStage& stage = problem.stage(action.stage);
      StageCounts& count = counts[static_cast<std::size_t>(action.stage)];
      PENSTOCK_ASSERT(stage.rank == rank && count.next(action.kind) == action.microbatch,
                      "built-in schedules take microbatches in order");
      count.add(action.kind);
      steps.push_back({static_cast<std::uint8_t>(stage.slot), action.kind});
    }
  }
  return order;
}

Schedule to_schedule(const SearchProblem& problem, const Order& order) {
  Schedule schedule;
  std::vector<StageCounts> counts(problem.stages.size());
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    const std::vector<Step>& steps = order[static_cast<std::size_t>(rank)];
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    actions.reserve(steps.size());
    for (const Step step : steps) {
      const int stage = problem.rank(rank).stages[step.slot];
      StageCounts& count = counts[static_cast<std::size_t>(stage)];
      actions.push_back({.stage = stage, .kind = step.kind, .microbatch = count.next(step.kind)});
      count.add(step.kind);
    }
  }
  return schedule;
}

Order make_sequential_order(const SearchProblem& problem) {
  Order order(problem.ranks.size());
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    std::vector<Step>& steps = order[static_cast<std::size_t>(rank)];
    const auto num_slots = static_cast<int>(problem.rank(rank).stages.size());
    for (int microbatch = 0; microbatch < problem.num_microbatches; ++microbatch) {
      for (int slot = 0; slot < num_slots; ++slot) {
        steps.push_back({static_cast<std::uint8_t>(slot), ActionKind::Forward});
      }
      for (int slot = num_slots - 1; slot >= 0; --slot) {
        steps.push_back({static_cast<std::uint8_t>(slot), ActionKind::InputBackward});
        steps.push_back({static_cast<std::uint8_t>(slot), ActionKind::WeightBackward});
      }
    }
  }
  return order;
}

}  // namespace penstock
