#include "penstock/run/train/internal/searched_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/balance/balance.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/search/search.h"
#include "penstock/run/capture/saved_state.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {
namespace {

constexpr int kProfiledSteps = 4;

// What the stages cost when they are trained under `order`.
CostModel measure_costs(const RunModel& model, const CutPositions& cuts, const Schedule& order,
                        const LossFunction& loss, const Batch& batch) {
  const Pipe pipe(split_graph(model.captured, cuts));
  std::vector<at::Tensor> buffers;
  for (const auto& [name, tensor] : pipe.named_buffers()) buffers.push_back(tensor);
  const SavedState saved(buffers);
  const SavedGradients gradients(pipe.parameters());
  const auto recorder = std::make_shared<ProfileRecorder>();
  PipelineSchedule pipeline(pipe.build_stages(), order,
                            {.num_microbatches = extent_of(order).num_microbatches,
                             .loss = loss,
                             .observers = {recorder},
                             .intra_op_threads = 1});
  for (int step = 0; step < kProfiledSteps; ++step) {
    pipeline.step({batch.inputs},
                  {.target = batch.targets, .return_outputs = false, .seed = std::uint64_t{0}});
  }
  return recorder->profile(pipeline.stages()).costs;
}

Duration backward_of(const StageCost& cost) {
  return cost.input_backward + cost.weight_backward;
}

Duration scaled(Duration time, double factor) {
  return Duration(std::llround(static_cast<double>(time.count()) * factor));
}

double ratio(Duration measured, Duration expected) {
  if (expected <= Duration::zero()) return 1;
  return static_cast<double>(measured.count()) / static_cast<double>(expected.count());
}

// The slowest of `stages`, if their layers cost as in `pieces`.
Duration slowest(const std::vector<BalancedStage>& stages, const std::vector<LayerCost>& pieces) {
  Duration longest{};
  for (const BalancedStage& stage : stages) {
    Duration time{};
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      const LayerCost& piece = pieces[static_cast<std::size_t>(layer)];
      time += piece.forward + piece.backward;
    }
    longest = std::max(longest, time);
  }
  return longest;
}

// Stages and what they cost, measured in a pipeline.
struct MeasuredStages {
  CutPositions cuts;
  PolicyReport balance;
  CostModel costs;
  bool is_cut_anew = false;
};

void tell(const PlanRequest& request, const std::string& line) {
  if (request.tell) request.tell(line);
}

MeasuredStages measure_balanced(const RunModel& model, const PlanRequest& request,
                                const SplitPolicy& policy,
                                const std::shared_ptr<PolicyReport>& report, const Schedule& order,
                                const LossFunction& loss, const Batch& batch) {
  MeasuredStages stages;
  stages.cuts = policy(model.captured, model.example);
  stages.balance = *report;
  tell(request, fmt::format("search: training {} steps to measure {}", kProfiledSteps,
                            counted(static_cast<long long>(stages.balance.stages.size()), "stage",
                                    "stages")));
  stages.costs = measure_costs(model, stages.cuts, order, loss, batch);
  return stages;
}

// First as pieces of the model take their time one by one; then as they did in the pipeline, if
// that makes the slowest stage faster by more than measured times differ by themselves.
MeasuredStages balance_and_measure(const RunModel& model, const PlanRequest& request,
                                   int num_stages, const Schedule& order, const LossFunction& loss,
                                   const Batch& batch) {
  constexpr double kWorthwhile = 0.95;
  const auto report = std::make_shared<PolicyReport>();
  MeasuredStages stages = measure_balanced(model, request, split_by_time(num_stages, report),
                                           report, order, loss, batch);
  const std::vector<LayerCost> pieces = corrected_costs(stages.balance, stages.costs);
  const SplitPolicy again = split_by_costs(num_stages, pieces, report);
  again(model.captured, model.example);
  if (slowest(report->stages, pieces) >
      scaled(slowest(stages.balance.stages, pieces), kWorthwhile)) {
    return stages;
  }
  tell(request, "search: the stages are uneven; cutting the model anew");
  stages = measure_balanced(model, request, again, report, order, loss, batch);
  stages.is_cut_anew = true;
  return stages;
}

struct Candidate {
  SearchResult found;
  MeasuredStages stages;
};

// Measures with a schedule that has I and W apart, so that each has a time of its own.
Candidate search_with(const RunModel& model, const PlanRequest& request, const LossFunction& loss,
                      const Batch& batch, const char* measured_with, int stages_per_rank) {
  const Schedule order =
      make_schedule(measured_with,
                    {.num_ranks = request.num_ranks, .num_microbatches = request.num_microbatches});
  Candidate candidate;
  candidate.stages =
      balance_and_measure(model, request, stages_per_rank * request.num_ranks, order, loss, batch);
  SearchOptions options;
  options.num_ranks = request.num_ranks;
  options.num_microbatches = request.num_microbatches;
  options.costs = candidate.stages.costs;
  options.objective = SearchObjective::Makespan;
  candidate.found = search(options);
  return candidate;
}

std::string shares_text(const CostModel& costs) {
  Duration total{};
  for (const StageCost& cost : costs.stages) total += cost.forward + backward_of(cost);
  std::string text;
  for (const StageCost& cost : costs.stages) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{:.1f}", 100 * ratio(cost.forward + backward_of(cost), total));
  }
  return text;
}

std::string remark_on(const Candidate& chosen, int num_ranks) {
  const SearchResult& found = chosen.found;
  const auto num_stages = static_cast<int>(chosen.stages.costs.stages.size());
  std::string text = fmt::format(
      "search: {} per rank, {} placement, found by {}; predicted bubble {:.1f} %",
      counted(num_stages / num_ranks, "stage", "stages"), search_placement_name(found.placement),
      found.method, 100 * found.figures.makespan_bubble);
  if (found.best_built_in) {
    text += fmt::format(", {:.1f} % with {}", 100 * found.best_built_in->figures.makespan_bubble,
                        found.best_built_in->name);
  }
  text += fmt::format("\nsearch: stages take {} % of the time{}", shares_text(chosen.stages.costs),
                      chosen.stages.is_cut_anew ? ", cut anew by what was measured" : "");
  return text;
}

}  // namespace

std::vector<LayerCost> corrected_costs(const PolicyReport& balance, const CostModel& measured) {
  const auto num_others = static_cast<std::ptrdiff_t>(balance.stages.size()) - 1;
  Duration others_forward{};
  Duration others_backward{};
  Duration expected_forward{};
  Duration expected_backward{};
  for (int stage = 0; stage < num_others; ++stage) {
    others_forward += measured.stage(stage).forward;
    others_backward += backward_of(measured.stage(stage));
    expected_forward += balance.stages[static_cast<std::size_t>(stage)].forward;
    expected_backward += balance.stages[static_cast<std::size_t>(stage)].backward;
  }
  std::vector<LayerCost> pieces = balance.pieces;
  for (int index = 0; index <= num_others; ++index) {
    const BalancedStage& stage = balance.stages[static_cast<std::size_t>(index)];
    const StageCost& cost = measured.stage(index);
    double forward = ratio(cost.forward, stage.forward);
    double backward = ratio(backward_of(cost), stage.backward);
    if (index == num_others) {
      forward = std::min(forward, ratio(others_forward, expected_forward));
      backward = std::min(backward, ratio(others_backward, expected_backward));
    }
    Duration left_forward = cost.forward;
    Duration left_backward = backward_of(cost);
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      LayerCost& piece = pieces[static_cast<std::size_t>(layer)];
      piece.forward = scaled(piece.forward, forward);
      piece.backward = scaled(piece.backward, backward);
      left_forward -= piece.forward;
      left_backward -= piece.backward;
    }
    if (index < num_others) continue;
    pieces.back().forward += std::max(Duration::zero(), left_forward);
    pieces.back().backward += std::max(Duration::zero(), left_backward);
  }
  return pieces;
}

SearchedPlan search_plan(const RunModel& model, const PlanRequest& request,
                         const LossFunction& loss, const Batch& batch) {
  if (request.stages_per_rank > 2) {
    throw ArgumentError(
        fmt::format("a search decides between 1 and 2 stages per rank; {} is not among them",
                    request.stages_per_rank));
  }
  std::optional<Candidate> best;
  const auto consider = [&](const char* measured_with, int stages_per_rank) {
    if (request.stages_per_rank != 0 && request.stages_per_rank != stages_per_rank) return;
    try {
      Candidate next = search_with(model, request, loss, batch, measured_with, stages_per_rank);
      if (!best || next.found.figures.makespan < best->found.figures.makespan) {
        best = std::move(next);
      }
    } catch (const SplitError&) {
      if (stages_per_rank == 1 || request.stages_per_rank != 0) throw;  // too few places for a V
    }
  };
  consider("ZB-H1", 1);
  consider("ZBV", 2);
  return {.schedule = best->found.schedule,
          .cuts = best->stages.cuts,
          .remark = remark_on(*best, request.num_ranks)};
}

}  // namespace penstock
