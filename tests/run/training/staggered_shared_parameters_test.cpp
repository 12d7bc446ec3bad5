#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/stage/shared_claims.h"
#include "penstock/run/training/staggered_trainer.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/rank_processes.h"

// Parameters that several stages use, in steps without a barrier.
namespace penstock {
namespace {

// The first and the last of four stages use one table.
StageList tied_stages(const torch::Tensor& table, const torch::Tensor& weight) {
  const auto uses_table = [](const char* product) {
    return stage_graph(std::string("graph(%x : Tensor, %w : Tensor):\n") + product +
                           "  %y : Tensor = aten::matmul(%x, %t)\n  return (%y)\n",
                       {"x"});
  };
  const auto claims = std::make_shared<SharedClaims>();
  claims->set_uses({{0, "table"}, {3, "table"}});
  std::vector<StageGraph> graphs;
  graphs.push_back(uses_table("  %t : Tensor = aten::tanh(%w)\n"));
  graphs.push_back(uses_table("  %t : Tensor = aten::tanh(%w)\n"));
  graphs.push_back(
      stage_graph("graph(%x : Tensor):\n  %y : Tensor = aten::tanh(%x)\n"
                  "  return (%y)\n",
                  {"x"}));
  graphs.push_back(uses_table("  %t : Tensor = aten::t(%w)\n"));
  graphs[0].shared = {{"table", table}};
  graphs[1].tensors = {{"weight", weight}};
  graphs[3].shared = {{"table", table}};
  StageList stages;
  for (StageGraph& graph : graphs) {
    graph.claims = claims;
    stages.push_back(std::make_shared<PipelineStage>(
        make_graph_module(std::move(graph)),
        StagePosition{.index = static_cast<int>(stages.size()), .num_stages = 4}));
  }
  return stages;
}

struct TiedWeights {
  torch::Tensor table;
  torch::Tensor weight;

  TiedWeights() {
    torch::manual_seed(4);
    table = torch::randn({5, 5}).requires_grad_();
    weight = torch::randn({5, 5}).requires_grad_();
  }
};

StepBatch tied_batch(std::int64_t step) {
  torch::Tensor target = torch::full({4, 5}, 0.5 + static_cast<double>(step));
  if (step == 2) target *= 100;
  return {.inputs = {torch::ones({4, 5}) * 0.5},
          .options = {.target = target, .return_outputs = false}};
}

torch::Tensor mean_square(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

constexpr double kTiedNorm = 20;

std::unique_ptr<torch::optim::Optimizer> tied_optimizer(std::vector<torch::Tensor> parameters) {
  return make_optimizer("adamw", std::move(parameters), {.learning_rate = 0.05});
}

std::vector<torch::Tensor> train_tied_with_barrier() {
  const TiedWeights model;
  ScheduleZBVZeroBubble pipeline(tied_stages(model.table, model.weight),
                                 {.num_microbatches = 2, .loss = mean_square});
  const auto optimizer = tied_optimizer({model.table, model.weight});
  for (std::int64_t step = 0; step < 5; ++step) {
    StepBatch batch = tied_batch(step);
    pipeline.step(std::move(batch.inputs), batch.options);
    EXPECT_EQ(clip_grad_norm(pipeline, kTiedNorm).is_clipped(), step == 2);
    optimizer->step();
    for (const auto& parameter : pipeline.parameters()) parameter.mutable_grad().reset();
  }
  return {model.table, model.weight};
}

TEST(StaggeredTrainer, StepsAParameterOfTwoStagesOnOneRank) {
  const std::vector<torch::Tensor> expected = train_tied_with_barrier();
  const TiedWeights model;
  ScheduleZBVZeroBubble pipeline(tied_stages(model.table, model.weight),
                                 {.num_microbatches = 2, .loss = mean_square});
  StaggeredTrainer trainer(pipeline, tied_optimizer, {.max_norm = kTiedNorm});
  trainer.run({.count = 5, .batch = tied_batch});
  expect_equal({model.table, model.weight}, expected, "parameter");
}

// Each process has a copy of the table, which only the first one counts in the norm.
TEST(StaggeredTrainer, StepsTheCopiesOfAParameterAlike) {
  run_in_processes(2, [](const WorldOptions& options) {
    const std::vector<torch::Tensor> expected = train_tied_with_barrier();
    World world(options);
    const TiedWeights model;
    StageList stages = tied_stages(model.table, model.weight);
    const auto first = static_cast<std::size_t>(options.rank) * 2;
    stages = {stages[first], stages[first + 1]};
    const Schedule order = [] {
      Schedule schedule = make_schedule(
          "Interleaved1F1B", {.num_ranks = 1, .num_microbatches = 2, .stages_per_rank = 4});
      // Two stages after each other on each rank.
      Schedule cut;
      cut.ranks.resize(2);
      for (const Action& action : schedule.ranks.front()) {
        if (action.kind == ActionKind::Idle) continue;
        cut.ranks[static_cast<std::size_t>(action.stage / 2)].push_back(action);
      }
      return cut;
    }();
    PipelineSchedule pipeline(stages, order,
                              {.num_microbatches = 2,
                               .group = std::make_shared<ProcessRanks>(world, ProcessRankOptions()),
                               .loss = mean_square});
    StaggeredTrainer trainer(pipeline, tied_optimizer, {.max_norm = kTiedNorm});
    trainer.run({.count = 5, .batch = tied_batch});
    expect_equal({model.table}, {expected[0]}, "table");
    if (options.rank == 0) expect_equal({model.weight}, {expected[1]}, "weight");
  });
}

TEST(StaggeredTrainer, RefusesAParameterOfTwoRanks) {
  const TiedWeights model;
  PipelineSchedule pipeline(tied_stages(model.table, model.weight),
                            make_schedule("1F1B", {.num_ranks = 4, .num_microbatches = 2}),
                            {.num_microbatches = 2, .loss = mean_square});
  StaggeredTrainer trainer(pipeline, tied_optimizer);
  EXPECT_EQ(message_of([&] { trainer.run({.count = 1, .batch = tied_batch}); }),
            "stage 0 on rank 0 and stage 3 on rank 3 use the parameter \"table\", so neither rank "
            "can step it on its own; put both stages on one rank, make each rank a process, or "
            "call step()");
}

TEST(StaggeredTrainer, RefusesAParameterOfTwoStagesInReplicas) {
  PipelineReplicas replicas(2, [](const Replica& replica) {
    const TiedWeights model;
    return std::make_unique<ScheduleZBVZeroBubble>(
        tied_stages(model.table, model.weight),
        ScheduleOptions{.num_microbatches = 2, .data_group = replica.group, .loss = mean_square});
  });
  StaggeredTrainer trainer(replicas.replica(0), tied_optimizer);
  EXPECT_EQ(message_of([&] { trainer.run({.count = 1, .batch = tied_batch}); }),
            "stage 0 uses the parameter \"table\" together with other stages, which replicas "
            "cannot reduce in a series of steps; call step()");
}

}  // namespace
}  // namespace penstock
