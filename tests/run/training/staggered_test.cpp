#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/training/staggered_trainer.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/rank_processes.h"
#include "tests/run/training/troubled_run.h"

// Staggered steps give what steps with a barrier give, to the bit.
namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMicrobatches = 4;

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
                        .num_steps = kTroubledSteps},
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
Trained train_with_barrier(const TestModel& model, const Setting& setting,
                           int num_steps = kTroubledSteps) {
  const Schedule order = order_of(setting);
  Trained trained{.blocks = model.make(extent_of(order).num_stages)};
  PipelineSchedule pipeline(make_stages(trained.blocks), order,
                            {.num_microbatches = kMicrobatches, .loss = model.loss});
  const auto optimizer =
      make_optimizer(setting.optimizer, pipeline.parameters(), options_of(setting));
  for (std::int64_t step = 0; step < num_steps; ++step) {
    StepBatch batch = batch_of(model, step);
    trained.losses.push_back(pipeline.step(std::move(batch.inputs), batch.options).losses);
    const GradientNorm gradients = clip_grad_norm(pipeline, kTroubledNorm);
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
                        const std::vector<std::int64_t>& parts = {kTroubledSteps}) {
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
                           {.max_norm = kTroubledNorm, .learning_rate = rate_of});
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

class Staggered : public ::testing::TestWithParam<Setting> {};

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
    ::testing::Values(Setting{"ZBVZeroBubble", 2}, Setting{"ZBVZeroBubble", 3, "SGD"},
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

class StaggeredProcesses : public ::testing::TestWithParam<Way> {};

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
                         ::testing::Values(Way{{"ZBVZeroBubble", 2}}, Way{{"ZB-H2", 2}},
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
    Schedule1F1B pipeline(make_stages(modules),
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

// ---- observers ----

TEST(StaggeredTrainer, IsMeasuredLikeSteps) {
  const TestModel model = mlp_model();
  const auto profile = std::make_shared<ProfileRecorder>(ProfileOptions{.num_warm_up_steps = 2});
  Schedule1F1B pipeline(
      make_stages(model.make(2)),
      {.num_microbatches = kMicrobatches, .loss = model.loss, .observers = {profile}});
  StaggeredTrainer trainer(pipeline, optimizers_of({"1F1B"}));
  const auto batch = [&](std::int64_t step) { return batch_of(model, step == 0 ? 0 : 1); };
  EXPECT_EQ(message_of([&] { profile->profile(pipeline.stages()); }),
            "stage 0 was not measured yet; run a step first");
  trainer.run({.count = 3, .batch = batch});
  EXPECT_GT(profile->profile(pipeline.stages()).costs.stages[1].forward.count(), 0);
}

}  // namespace
}  // namespace penstock
