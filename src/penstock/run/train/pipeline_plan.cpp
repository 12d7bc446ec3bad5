#include "penstock/run/train/pipeline_plan.h"

#include <algorithm>
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
#include "penstock/run/partition/split_policy.h"
#include "penstock/run/train/internal/searched_plan.h"

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
  if (same_name(request.schedule, "search")) {
    SearchedPlan searched = search_plan(model, request, loss, batch);
    return {.name = "search",
            .schedule = std::move(searched.schedule),
            .cuts = numbers_of(model.captured, searched.cuts),
            .remark = std::move(searched.remark)};
  }
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
