#include "penstock/run/train/pipeline_plan.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/renumber_microbatches.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/search/search.h"
#include "penstock/run/capture/saved_state.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/partition/split_policy.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {
namespace {

using torch::jit::Node;

std::vector<int> numbers_of(const CapturedModel& model, const CutPositions& cuts) {
  std::vector<int> numbers;
  int number = 0;
  for (Node* node : model.graph->nodes()) {
    if (std::find(cuts.begin(), cuts.end(), node) != cuts.end()) numbers.push_back(number);
    ++number;
  }
  return numbers;
}

CutPositions balanced_cuts(const RunModel& model, int num_stages) {
  return split_by_time(num_stages)(model.captured, model.example);
}

// What the stages cost when they are trained under `order`.
CostModel measure_costs(const RunModel& model, const CutPositions& cuts, const Schedule& order,
                        const LossFunction& loss, const Batch& batch) {
  constexpr int kSteps = 4;
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
  for (int step = 0; step < kSteps; ++step) {
    pipeline.step({batch.inputs},
                  {.target = batch.targets, .return_outputs = false, .seed = std::uint64_t{0}});
  }
  return recorder->profile(pipeline.stages()).costs;
}

struct Candidate {
  SearchResult found;
  CutPositions cuts;
};

// Measures with a schedule that has I and W apart, so that each has a time of its own.
Candidate search_with(const RunModel& model, const PlanRequest& request, const LossFunction& loss,
                      const Batch& batch, const char* measured_with, int stages_per_rank) {
  const Schedule order =
      make_schedule(measured_with,
                    {.num_ranks = request.num_ranks, .num_microbatches = request.num_microbatches});
  Candidate candidate;
  candidate.cuts = balanced_cuts(model, stages_per_rank * request.num_ranks);
  SearchOptions options;
  options.num_ranks = request.num_ranks;
  options.num_microbatches = request.num_microbatches;
  options.costs = measure_costs(model, candidate.cuts, order, loss, batch);
  options.objective = SearchObjective::Makespan;
  candidate.found = search(options);
  return candidate;
}

PipelinePlan searched_plan(const RunModel& model, const PlanRequest& request,
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
  const SearchResult& found = best->found;
  std::string remark = fmt::format("search: {} placement, found by {}; predicted bubble {:.1f} %",
                                   search_placement_name(found.placement), found.method,
                                   100 * found.figures.makespan_bubble);
  if (found.best_built_in) {
    remark += fmt::format(", {:.1f} % with {}", 100 * found.best_built_in->figures.makespan_bubble,
                          found.best_built_in->name);
  }
  return {.name = "search",
          .schedule = found.schedule,
          .cuts = numbers_of(model.captured, best->cuts),
          .remark = std::move(remark)};
}

PipelinePlan fixed_plan(const RunModel& model, std::string name, Schedule schedule) {
  const int num_stages = extent_of(schedule).num_stages;
  return {.name = std::move(name),
          .schedule = std::move(schedule),
          .cuts = numbers_of(model.captured, balanced_cuts(model, num_stages)),
          .remark = {}};
}

void require_fit(const PlanRequest& request) {
  const Extent extent = extent_of(*request.custom);
  if (request.custom->num_ranks() != request.num_ranks ||
      extent.num_microbatches != request.num_microbatches) {
    throw ArgumentError(fmt::format(
        "the schedule {} is for {} and {}, but the run has {} and {}; give it as many "
        "ranks and microbatches as the schedule has",
        quote(request.schedule, 200), counted(request.custom->num_ranks(), "rank", "ranks"),
        counted(extent.num_microbatches, "microbatch", "microbatches"), request.num_ranks,
        request.num_microbatches));
  }
}

PipelinePlan plan_as_numbered(const RunModel& model, const PlanRequest& request,
                              const LossFunction& loss, const Batch& batch) {
  if (request.custom) {
    require_fit(request);
    return fixed_plan(model, request.schedule, *request.custom);
  }
  if (same_name(request.schedule, "search")) return searched_plan(model, request, loss, batch);
  const ScheduleFamily& family = schedule_family(request.schedule);
  const ScheduleShape shape{.num_ranks = request.num_ranks,
                            .num_microbatches = request.num_microbatches,
                            .stages_per_rank = request.stages_per_rank};
  return fixed_plan(model, std::string(family.name), make_schedule(family.name, shape));
}

}  // namespace

PipelinePlan make_plan(const RunModel& model, const PlanRequest& request, const LossFunction& loss,
                       const Batch& batch) {
  PipelinePlan plan = plan_as_numbered(model, request, loss, batch);
  plan.schedule = renumber_microbatches(plan.schedule);
  return plan;
}

CutPositions cut_positions(const CapturedModel& model, const std::vector<int>& cuts) {
  const std::vector<Node*> nodes(model.graph->nodes().begin(), model.graph->nodes().end());
  CutPositions positions;
  for (const int cut : cuts) {
    if (cut < 0 || cut >= static_cast<int>(nodes.size())) {
      throw ArgumentError(
          fmt::format("the model has no operator {} to be cut at; it has {}", cut, nodes.size()));
    }
    positions.push_back(nodes[static_cast<std::size_t>(cut)]);
  }
  return positions;
}

Schedule forward_order(const Schedule& schedule, int num_microbatches) {
  const Placement placement = placement_of(schedule, extent_of(schedule).num_stages);
  Schedule order;
  order.ranks.resize(schedule.ranks.size());
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    for (int stage = 0; stage < placement.num_stages(); ++stage) {
      order.ranks[static_cast<std::size_t>(placement.rank_of(stage))].push_back(
          {.stage = stage, .kind = ActionKind::Forward, .microbatch = microbatch});
    }
  }
  return order;
}

std::string write_plan(const PipelinePlan& plan) {
  return nlohmann::json{{"name", plan.name},
                        {"schedule", write_csv(plan.schedule)},
                        {"cuts", plan.cuts},
                        {"remark", plan.remark}}
      .dump();
}

PipelinePlan read_plan(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.name = json.at("name"),
          .schedule = read_csv(json.at("schedule").get<std::string>(), "plan"),
          .cuts = json.at("cuts").get<std::vector<int>>(),
          .remark = json.at("remark")};
}

}  // namespace penstock
