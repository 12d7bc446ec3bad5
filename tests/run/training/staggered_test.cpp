#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/stage/shared_claims.h"
#include "penstock/run/training/staggered_trainer.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/rank_processes.h"

// Staggered steps give what steps with a barrier give, to the bit.
namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kMicrobatches = 4;
constexpr int kSteps = 9;
constexpr double kMaxNorm = 50;

// What happens in the steps of a run. The gradients of step 3 are not finite, because of one
// microbatch; those of 5, 6 and 8 are too long.
bool is_bad(std::int64_t step) {
  return step == 3;
}
bool is_long(std::int64_t step) {
  return step == 5 || step == 6 || step == 8;
}

struct Setting {
  std::string schedule;
  int num_ranks = 2;
  std::string optimizer = "AdamW";
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.schedule << " on " << setting.num_ranks << " with " << setting.optimizer;
}

OptimizerOptions options_of(const Setting& setting) {
  OptimizerOptions options{.learning_rate = 0.01};
  if (setting.optimizer == "SGD") options.momentum = 0.9;
  return options;
}

double rate_of(std::int64_t step) {
  return learning_rate({.peak = 0.01,
                        .minimum = 0.001,
                        .decay = Decay::Cosine,
                        .num_warm_up_steps = 2,
                        .num_steps = kSteps},
                       step);
}

// A batch of its own for every step, with a target that makes its gradients what they are to be.
StepBatch batch_of(const TestModel& model, std::int64_t step) {
  const int rows = 2 * kMicrobatches;
  torch::Tensor inputs = model.make_inputs(rows).roll(step, 0);
  torch::Tensor targets = model.make_targets(rows).roll(2 * step, 0).clone();
  if (is_bad(step)) targets[5].fill_(std::numeric_limits<float>::quiet_NaN());
  if (is_long(step)) targets *= 1000;
  return {.inputs = {inputs}, .options = {.target = targets, .return_outputs = false}};
}

Schedule order_of(const Setting& setting) {
  return make_schedule(setting.schedule,
                       {.num_ranks = setting.num_ranks, .num_microbatches = kMicrobatches});
}

std::vector<torch::Tensor> everything_in(const Blocks& blocks) {
  std::vector<torch::Tensor> tensors;
  for (const auto& block : blocks) {
    for (const auto& parameter : block->parameters()) tensors.push_back(parameter.detach().clone());
    for (const auto& buffer : block->buffers()) tensors.push_back(buffer.detach().clone());
  }
  return tensors;
}

struct Trained {
  Blocks blocks;
  std::vector<std::vector<torch::Tensor>> losses = {};  // by step
  std::vector<double> norms = {};
  std::vector<std::int64_t> rolled_back = {};
};

// The ordinary loop.
Trained train_with_barrier(const TestModel& model, const Setting& setting, int num_steps = kSteps) {
  const Schedule order = order_of(setting);
  Trained trained{.blocks = model.make(extent_of(order).num_stages)};
  PipelineSchedule pipeline(make_stages(trained.blocks), order,
                            {.num_microbatches = kMicrobatches, .loss = model.loss});
  const auto optimizer =
      make_optimizer(setting.optimizer, pipeline.parameters(), options_of(setting));
  for (std::int64_t step = 0; step < num_steps; ++step) {
    StepBatch batch = batch_of(model, step);
    trained.losses.push_back(pipeline.step(std::move(batch.inputs), batch.options).losses);
    const GradientNorm gradients = clip_grad_norm(pipeline, kMaxNorm);
    trained.norms.push_back(gradients.norm);
    set_learning_rate(*optimizer, rate_of(step));
    if (gradients.is_finite()) optimizer->step();
    for (const torch::Tensor& parameter : pipeline.parameters()) parameter.mutable_grad().reset();
  }
  return trained;
}

StaggeredTrainer::MakeOptimizer optimizers_of(const Setting& setting) {
  return [setting](std::vector<torch::Tensor> parameters) {
    return make_optimizer(setting.optimizer, std::move(parameters), options_of(setting));
  };
}

Trained train_staggered(const TestModel& model, const Setting& setting,
                        const std::shared_ptr<RankGroup>& group = nullptr,
                        const std::vector<std::int64_t>& parts = {kSteps}) {
  const Schedule order = order_of(setting);
  const int num_stages = extent_of(order).num_stages;
  Trained trained{.blocks = model.make(num_stages)};
  StageList stages = make_stages(trained.blocks);
  if (group != nullptr) {
    const Placement placement = placement_of(order, num_stages);
    std::erase_if(stages, [&](const auto& stage) {
      return placement.rank_of(stage->index()) != group->local_ranks().front();
    });
  }
  PipelineSchedule pipeline(
      stages, order, {.num_microbatches = kMicrobatches, .group = group, .loss = model.loss});
  StaggeredTrainer trainer(pipeline, optimizers_of(setting),
                           {.max_norm = kMaxNorm, .learning_rate = rate_of});
  std::int64_t first = 0;
  for (const std::int64_t count : parts) {
    trainer.run({.first = first,
                 .count = count,
                 .batch = [&](std::int64_t step) { return batch_of(model, step); },
                 .take_outcome =
                     [&](const StepOutcome& outcome) {
                       EXPECT_EQ(outcome.step, static_cast<std::int64_t>(trained.norms.size()));
                       trained.losses.push_back(outcome.result.losses);
                       trained.norms.push_back(outcome.gradients.norm);
                       if (outcome.was_rolled_back) trained.rolled_back.push_back(outcome.step);
                       EXPECT_EQ(outcome.gradients.is_finite(), !is_bad(outcome.step));
                       EXPECT_EQ(outcome.gradients.is_clipped(), is_long(outcome.step));
                     }});
    first += count;
  }
  return trained;
}

void expect_same_numbers(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_TRUE(found[index] == expected[index] ||
                (std::isnan(found[index]) && std::isnan(expected[index])))
        << "step " << index << ": " << found[index] << " instead of " << expected[index];
  }
}

void expect_same_losses(const Trained& found, const Trained& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    if (is_bad(static_cast<std::int64_t>(step))) continue;
    expect_equal(found.losses[step], expected.losses[step], "loss");
  }
}

class Staggered : public testing::TestWithParam<Setting> {};

TEST_P(Staggered, TrainsLikeStepsWithABarrier) {
  for (const TestModel& model : {mlp_model(), conv_net_model()}) {
    SCOPED_TRACE(model.name);
    const Trained expected = train_with_barrier(model, GetParam());
    const Trained found = train_staggered(model, GetParam());
    expect_equal(everything_in(found.blocks), everything_in(expected.blocks),
                 "parameter or buffer");
    expect_same_numbers(found.norms, expected.norms);
    expect_same_losses(found, expected);
    // Step 6 comes after a guess that was wrong, so it is not guessed.
    EXPECT_THAT(found.rolled_back, ElementsAre(3, 5, 8));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Staggered,
    testing::Values(Setting{"ZBVZeroBubble", 2}, Setting{"ZBVZeroBubble", 3, "SGD"},
                    Setting{"ZB-H2", 2}, Setting{"ZB-H2", 4, "SGD"}, Setting{"1F1B", 2, "Adam"},
                    Setting{"1F1B", 4}, Setting{"InterleavedZeroBubble", 2, "RMSprop"},
                    Setting{"GPipe", 3, "Adagrad"}, Setting{"DualPipeV", 2}, Setting{"1F1B", 1}),
    [](const auto& instance) {
      std::string name = instance.param.schedule + instance.param.optimizer +
                         std::to_string(instance.param.num_ranks);
      std::erase_if(name, [](char letter) { return std::isalnum(letter) == 0; });
      return name;
    });

// A wrong guess at the end of a series is settled before it returns.
TEST(StaggeredTrainer, GoesOnWhereTheLastSeriesEnded) {
  const Setting setting{"ZBVZeroBubble", 2};
  const TestModel model = conv_net_model();
  const Trained expected = train_with_barrier(model, setting);
  const Trained found = train_staggered(model, setting, nullptr, {4, 0, 2, 3});
  expect_equal(everything_in(found.blocks), everything_in(expected.blocks), "parameter or buffer");
  expect_same_numbers(found.norms, expected.norms);
  EXPECT_THAT(found.rolled_back, ElementsAre(3, 5, 6, 8));
}

struct Way {
  Setting setting;
  TransportKind transport = TransportKind::Automatic;
};

class StaggeredProcesses : public testing::TestWithParam<Way> {};

TEST_P(StaggeredProcesses, TrainLikeStepsWithABarrier) {
  const Setting& setting = GetParam().setting;
  if (GetParam().transport == TransportKind::Gloo && !has_gloo()) GTEST_SKIP() << "without Gloo";
  run_in_processes(setting.num_ranks, [&](const WorldOptions& options) {
    World world(options);
    const TestModel model = conv_net_model();
    const Schedule order = order_of(setting);
    const Placement placement = placement_of(order, extent_of(order).num_stages);
    const Trained expected = train_with_barrier(model, setting);
    const Trained found =
        train_staggered(model, setting,
                        std::make_shared<ProcessRanks>(
                            world, ProcessRankOptions{.transport = GetParam().transport}));
    EXPECT_THAT(found.rolled_back, ElementsAre(3, 5, 8));
    expect_same_numbers(found.norms, expected.norms);
    for (const int stage : placement.stages_of(options.rank)) {
      const auto index = static_cast<std::size_t>(stage);
      expect_equal(everything_in({found.blocks[index]}), everything_in({expected.blocks[index]}),
                   "parameter or buffer");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, StaggeredProcesses,
                         testing::Values(Way{{"ZBVZeroBubble", 2}}, Way{{"ZB-H2", 2}},
                                         Way{{"1F1B", 3}},
                                         Way{{"ZBVZeroBubble", 2}, TransportKind::Gloo}),
                         [](const auto& instance) {
                           std::string name =
                               instance.param.setting.schedule +
                               (instance.param.transport == TransportKind::Gloo ? "Gloo" : "");
                           std::erase_if(name,
                                         [](char letter) { return std::isalnum(letter) == 0; });
                           return name;
                         });

// ---- random numbers, shared parameters ----

// A dropout in every stage: a list that is run again must draw the same numbers.
TEST(StaggeredTrainer, DrawsTheSameNumbersAgain) {
  const auto train = [](bool is_staggered) {
    torch::manual_seed(11);
    std::vector<torch::Tensor> weights;
    std::vector<std::shared_ptr<StageModule>> modules;
    for (int stage = 0; stage < 2; ++stage) {
      const torch::nn::Linear layer(6, 6);
      weights.push_back(layer->weight);
      weights.push_back(layer->bias);
      torch::nn::Sequential block(layer, torch::nn::Dropout(0.3));
      modules.push_back(make_stage_module(block));
    }
    Schedule1F1B pipeline(stages_of(modules),
                          {.num_microbatches = 2,
                           .loss = [](const torch::Tensor& output, const torch::Tensor& target) {
                             return torch::mse_loss(output, target);
                           }});
    const auto batch = [](std::int64_t step) {
      torch::Tensor target = torch::full({4, 6}, 0.25 * static_cast<double>(step));
      if (step == 1) target[3].fill_(std::numeric_limits<float>::infinity());
      return StepBatch{.inputs = {torch::ones({4, 6})}, .options = {.target = target}};
    };
    const auto make = [](std::vector<torch::Tensor> parameters) {
      return make_optimizer("sgd", std::move(parameters), {.learning_rate = 0.1});
    };
    if (is_staggered) {
      StaggeredTrainer trainer(pipeline, make);
      trainer.run({.count = 5, .batch = batch});
      return weights;
    }
    const auto optimizer = make(pipeline.parameters());
    for (std::int64_t step = 0; step < 5; ++step) {
      StepBatch given = batch(step);
      pipeline.step(std::move(given.inputs), given.options);
      if (clip_grad_norm(pipeline, kNoLimit).is_finite()) optimizer->step();
      for (const torch::Tensor& weight : weights) weight.mutable_grad().reset();
    }
    return weights;
  };
  expect_equal(train(true), train(false), "weight");
}

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

// ---- what it refuses, and failures ----

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

TEST(StaggeredTrainer, RefusesInputsThatRequireGradients) {
  const TestModel model = mlp_model();
  Schedule1F1B pipeline(make_stages(model.make(2)), {.num_microbatches = 2, .loss = model.loss});
  StaggeredTrainer trainer(pipeline, optimizers_of({"1F1B"}));
  const auto batch = [&](std::int64_t step) {
    torch::Tensor inputs = model.make_inputs(4);
    if (step == 2) inputs.requires_grad_();
    return StepBatch{.inputs = {inputs}, .options = {.target = model.make_targets(4)}};
  };
  EXPECT_EQ(message_of([&] { trainer.run({.count = 5, .batch = batch}); }),
            "an input of step 2 requires a gradient, which a series of steps cannot give; call "
            "step()");
}

TEST(StaggeredTrainer, RefusesWhatItCannotTakeBack) {
  const TestModel model = mlp_model();
  Schedule1F1B pipeline(make_stages(model.make(2)), {.num_microbatches = 2, .loss = model.loss});
  EXPECT_THAT(message_of([&] {
                StaggeredTrainer(pipeline, [](const std::vector<torch::Tensor>& parameters) {
                  return std::make_unique<torch::optim::LBFGS>(parameters);
                });
              }),
              HasSubstr("torch::optim::LBFGS is not known"));
  EXPECT_EQ(message_of([&] {
              StaggeredTrainer(pipeline, [](const std::vector<torch::Tensor>&) { return nullptr; });
            }),
            "rank 0 was given no optimizer");
  EXPECT_EQ(
      message_of([&] { StaggeredTrainer(pipeline, optimizers_of({"1F1B"}), {.max_norm = 0}); }),
      "gradients cannot be clipped to a norm of 0; it must be above 0");
  StaggeredTrainer trainer(pipeline, optimizers_of({"1F1B"}));
  EXPECT_EQ(message_of([&] { trainer.run({.count = 1}); }),
            "staggered steps need StaggeredSteps::batch");
}

// A stage that throws in its nth forward.
std::shared_ptr<StageModule> fragile_module(const torch::Tensor& weight, int num_forwards) {
  const auto left = std::make_shared<std::atomic<int>>(num_forwards);
  return make_stage_module([weight, left](const torch::Tensor& input) {
    if ((*left)-- == 0) throw std::runtime_error("the cable was cut");
    return input * weight;
  });
}

StepBatch number_batch(std::int64_t /*step*/) {
  return {.inputs = {torch::ones({4, 1})}, .options = {.target = torch::ones({4, 1})}};
}

class StaggeredFailure : public testing::TestWithParam<int> {};

TEST_P(StaggeredFailure, OfARankStopsAll) {
  const int bad_stage = GetParam();
  std::vector<std::shared_ptr<StageModule>> modules;
  std::vector<torch::Tensor> weights;
  for (int stage = 0; stage < 3; ++stage) {
    weights.push_back(parameter(1.0));
    modules.push_back(fragile_module(weights.back(), stage == bad_stage ? 9 : 1000));
  }
  Schedule1F1B pipeline(stages_of(modules), {.num_microbatches = 4, .loss = sum_of_products});
  std::size_t rank = 0;
  const auto make = [&](std::vector<torch::Tensor> /*parameters*/) {
    return make_optimizer("sgd", {weights[rank++]}, {.learning_rate = 0});
  };
  StaggeredTrainer trainer(pipeline, make);
  EXPECT_THAT(message_of([&] { trainer.run({.count = 100, .batch = number_batch}); }),
              testing::MatchesRegex("rank " + std::to_string(bad_stage) + ", step [0-9]+ \\(" +
                                    std::to_string(bad_stage) +
                                    "F1\\): the module of stage .*"
                                    "the cable was cut"));
  // The pipeline is as good as new.
  for (const torch::Tensor& weight : weights) weight.mutable_grad().reset();
  pipeline.step({torch::ones({4, 1})}, {.target = torch::ones({4, 1})});
  EXPECT_EQ(weights[0].grad().item<float>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Stages, StaggeredFailure, testing::Values(0, 1, 2));

// What the rank of this process says when rank 1 comes to an end in its fourth step.
std::string message_of_failed_series(const WorldOptions& options,
                                     const std::function<void()>& end) {
  World world(options);
  const torch::Tensor weight = parameter(1.0);
  StageList stages = stages_of([weight](const torch::Tensor& input) { return input * weight; },
                               [weight](const torch::Tensor& input) { return input * weight; });
  stages = {stages[static_cast<std::size_t>(options.rank)]};
  Schedule1F1B pipeline(stages,
                        {.num_microbatches = 4,
                         .group = std::make_shared<ProcessRanks>(world, ProcessRankOptions()),
                         .loss = sum_of_products});
  StaggeredTrainer trainer(pipeline, [&](std::vector<torch::Tensor> /*parameters*/) {
    return make_optimizer("sgd", {weight}, {});
  });
  const auto batch = [&](std::int64_t step) {
    if (step == 3 && options.rank == 1) end();
    return number_batch(step);
  };
  return message_of([&] { trainer.run({.count = 100, .batch = batch}); });
}

TEST(StaggeredProcessesFailure, IsToldToAll) {
  run_in_processes(2, [](const WorldOptions& options) {
    const std::string message =
        message_of_failed_series(options, [] { throw std::runtime_error("the file has ended"); });
    if (options.rank == 1) {
      EXPECT_EQ(message, "the file has ended");
    } else {
      EXPECT_THAT(message, testing::MatchesRegex("rank 1 .* has failed: the file has ended"));
    }
  });
}

TEST(StaggeredProcessesFailure, OfADeadProcessIsNoticed) {
  run_in_processes(2, [](const WorldOptions& options) {
    const std::string message = message_of_failed_series(options, [] { _exit(EXIT_SUCCESS); });
    EXPECT_THAT(message, testing::MatchesRegex("rank 1 .* has died: .*"));
  });
}

TEST(StaggeredTrainer, StopsIfThereIsNoNextBatch) {
  const TestModel model = mlp_model();
  Schedule1F1B pipeline(make_stages(model.make(3)), {.num_microbatches = 2, .loss = model.loss});
  StaggeredTrainer trainer(pipeline, optimizers_of({"1F1B"}));
  std::atomic<int> num_calls = 0;
  const auto batch = [&](std::int64_t step) {
    ++num_calls;
    if (step == 3) throw std::runtime_error("the file has ended");
    return StepBatch{.inputs = {model.make_inputs(4)},
                     .options = {.target = model.make_targets(4)}};
  };
  EXPECT_EQ(message_of([&] { trainer.run({.count = 100, .batch = batch}); }), "the file has ended");
  EXPECT_EQ(num_calls, 4);
}

TEST(StaggeredTrainer, NamesTheRankWhoseOptimizerFails) {
  const torch::Tensor first = parameter(1.0);
  const torch::Tensor second = parameter(1.0);
  Schedule1F1B pipeline(stages_of([first](const torch::Tensor& input) { return input * first; },
                                  [second](const torch::Tensor& input) { return input * second; }),
                        {.num_microbatches = 4, .loss = sum_of_products});
  int rank = 0;
  const auto make = [&](std::vector<torch::Tensor> /*parameters*/) {
    return make_optimizer("sgd", {rank++ == 0 ? first : second}, {});
  };
  StaggeredTrainer trainer(pipeline, make, {.learning_rate = [](std::int64_t step) -> double {
                             if (step == 12) throw std::runtime_error("no such rate");
                             return 0.1;
                           }});
  EXPECT_THAT(
      message_of([&] { trainer.run({.first = 10, .count = 100, .batch = number_batch}); }),
      testing::MatchesRegex("rank [01], training step 12: the optimizer failed: no such rate"));
}

// ---- observers ----

TEST(StaggeredTrainer, IsMeasuredLikeSteps) {
  const TestModel model = mlp_model();
  const auto profile = std::make_shared<ProfileRecorder>(ProfileOptions{.num_warm_up_steps = 2});
  Schedule1F1B pipeline(
      make_stages(model.make(2)),
      {.num_microbatches = kMicrobatches, .loss = model.loss, .observers = {profile}});
  StaggeredTrainer trainer(pipeline, optimizers_of({"1F1B"}));
  const auto batch = [&](std::int64_t step) { return batch_of(model, step == 0 ? 0 : 1); };
  trainer.run({.count = 2, .batch = batch});
  EXPECT_THAT(message_of([&] { profile->profile(pipeline.stages()); }),
              HasSubstr("stage 0 was not measured yet"));
  trainer.run({.count = 1, .batch = batch});
  EXPECT_GT(profile->profile(pipeline.stages()).costs.stages[1].forward.count(), 0);
}

}  // namespace
}  // namespace penstock
