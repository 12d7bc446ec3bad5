#include "penstock/plan/search/internal/fuse_backwards.h"

#include <utility>
#include <vector>

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/search/internal/evaluate.h"

namespace penstock {
namespace {

// When each I or B starts.
MicrobatchGrid<Duration> input_starts(const SearchProblem& problem, const Order& order,
                                      const Trace& trace) {
  MicrobatchGrid<Duration> starts(problem.extent(), kNever);
  std::vector<StageCounts> counts(problem.stages.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    for (std::size_t position = 0; position < order[rank].size(); ++position) {
      const Step step = order[rank][position];
      const int stage = problem.ranks[rank].stages[step.slot];
      StageCounts& count = counts[static_cast<std::size_t>(stage)];
      if (makes_input_gradient(step.kind)) {
        starts.at(stage, count.inputs) = trace.starts[rank][position];
      }
      count.add(step.kind);
    }
  }
  return starts;
}

}  // namespace

Order fuse_backwards(const SearchProblem& problem, const Order& order) {
  Trace trace;
  evaluate(problem, order, &trace);
  const MicrobatchGrid<Duration> needed_at = input_starts(problem, order, trace);
  std::vector<StageCounts> counts(problem.stages.size());
  Order fused(order.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const std::vector<Step>& steps = order[rank];
    for (std::size_t position = 0; position < steps.size(); ++position) {
      Step step = steps[position];
      const int index = problem.ranks[rank].stages[step.slot];
      const SearchStage& stage = problem.stage(index);
      StageCounts& count = counts[static_cast<std::size_t>(index)];
      const bool is_followed_by_own_weights =
          step.kind == ActionKind::InputBackward && count.weights == count.inputs &&
          position + 1 < steps.size() &&
          steps[position + 1] == Step{step.slot, ActionKind::WeightBackward};
      const bool is_cheap = stage.full_backward <= stage.input_backward + stage.weight_backward;
      if (is_followed_by_own_weights && is_cheap) {
        const Duration arrival =
            trace.starts[rank][position] + stage.full_backward + stage.backward_hop.total();
        if (index == 0 || arrival <= needed_at.at(index - 1, count.inputs)) {
          step.kind = ActionKind::FullBackward;
          ++position;
        }
      }
      count.add(step.kind);
      fused[rank].push_back(step);
    }
  }
  return fused;
}

}  // namespace penstock
