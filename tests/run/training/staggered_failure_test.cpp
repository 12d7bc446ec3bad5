#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/training/staggered_trainer.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/rank_processes.h"

// What staggered steps refuse, and how they end when something fails.
namespace penstock {
namespace {

std::unique_ptr<torch::optim::Optimizer> any_optimizer(std::vector<torch::Tensor> parameters) {
  return make_optimizer("adamw", std::move(parameters), {});
}

TEST(StaggeredTrainer, RefusesInputsThatRequireGradients) {
  const TestModel model = mlp_model();
  Schedule1F1B pipeline(make_stages(model.make(2)), {.num_microbatches = 2, .loss = model.loss});
  StaggeredTrainer trainer(pipeline, any_optimizer);
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
              ::testing::HasSubstr("torch::optim::LBFGS is not known"));
  EXPECT_EQ(message_of([&] {
              StaggeredTrainer(pipeline, [](const std::vector<torch::Tensor>&) { return nullptr; });
            }),
            "rank 0 was given no optimizer");
  EXPECT_EQ(message_of([&] { StaggeredTrainer(pipeline, any_optimizer, {.max_norm = 0}); }),
            "gradients cannot be clipped to a norm of 0; it must be above 0");
  StaggeredTrainer trainer(pipeline, any_optimizer);
  EXPECT_EQ(message_of([&] { trainer.run({.count = 1}); }),
            "staggered steps need StaggeredSteps::batch");
}

// The messages of step(), about what was called.
TEST(StaggeredTrainer, SaysThatASeriesTrains) {
  const TestModel model = mlp_model();
  const auto message_with = [&](const LossFunction& loss, bool records_gradients) {
    Schedule1F1B pipeline(make_stages(model.make(2)), {.num_microbatches = 2, .loss = loss});
    StaggeredTrainer trainer(pipeline, any_optimizer);
    const torch::AutoGradMode grad_mode(records_gradients);
    const auto batch = [&](std::int64_t /*step*/) {
      return StepBatch{.inputs = {model.make_inputs(4)}};
    };
    return message_of([&] { trainer.run({.count = 1, .batch = batch}); });
  };
  EXPECT_EQ(message_with({}, true),
            "a series of steps trains, which needs ScheduleOptions::loss; to run forwards only, "
            "call eval()");
  EXPECT_EQ(message_with(model.loss, false),
            "a series of steps trains, but gradients are switched off on this thread; call eval(), "
            "or leave the scope of the NoGradGuard");
  EXPECT_EQ(message_with(model.loss, true),
            "a series of steps trains, which needs StepOptions::target; to run forwards only, call "
            "eval()");
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

class StaggeredFailure : public ::testing::TestWithParam<int> {};

TEST_P(StaggeredFailure, OfARankStopsAll) {
  const int bad_stage = GetParam();
  std::vector<std::shared_ptr<StageModule>> modules;
  std::vector<torch::Tensor> weights;
  for (int stage = 0; stage < 3; ++stage) {
    weights.push_back(parameter(1.0));
    modules.push_back(fragile_module(weights.back(), stage == bad_stage ? 9 : 1000));
  }
  Schedule1F1B pipeline(make_stages(modules), {.num_microbatches = 4, .loss = sum_of_products});
  std::size_t rank = 0;
  const auto make = [&](std::vector<torch::Tensor> /*parameters*/) {
    return make_optimizer("sgd", {weights[rank++]}, {.learning_rate = 0});
  };
  StaggeredTrainer trainer(pipeline, make);
  EXPECT_THAT(message_of([&] { trainer.run({.count = 100, .batch = number_batch}); }),
              ::testing::MatchesRegex("rank " + std::to_string(bad_stage) + ", step [0-9]+ \\(" +
                                      std::to_string(bad_stage) +
                                      "F1\\): the module of stage .*"
                                      "the cable was cut"));
  // The pipeline is as good as new.
  for (const torch::Tensor& weight : weights) weight.mutable_grad().reset();
  pipeline.step({torch::ones({4, 1})}, {.target = torch::ones({4, 1})});
  EXPECT_EQ(weights[0].grad().item<float>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Stages, StaggeredFailure, ::testing::Values(0, 1, 2));

// What the rank of this process says when rank 1 comes to an end in its fourth step.
std::string message_of_failed_series(const WorldOptions& options,
                                     const std::function<void()>& end) {
  World world(options);
  const torch::Tensor weight = parameter(1.0);
  StageList stages = make_stages([weight](const torch::Tensor& input) { return input * weight; },
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
      EXPECT_THAT(message, ::testing::MatchesRegex("rank 1 .* has failed: the file has ended"));
    }
  });
}

TEST(StaggeredProcessesFailure, OfADeadProcessIsNoticed) {
  run_in_processes(2, [](const WorldOptions& options) {
    const std::string message = message_of_failed_series(options, [] { _exit(EXIT_SUCCESS); });
    EXPECT_THAT(message, ::testing::MatchesRegex("rank 1 .* has died: .*"));
  });
}

TEST(StaggeredTrainer, StopsIfThereIsNoNextBatch) {
  const TestModel model = mlp_model();
  Schedule1F1B pipeline(make_stages(model.make(3)), {.num_microbatches = 2, .loss = model.loss});
  StaggeredTrainer trainer(pipeline, any_optimizer);
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
  Schedule1F1B pipeline(
      make_stages([first](const torch::Tensor& input) { return input * first; },
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
      ::testing::MatchesRegex("rank [01], training step 12: the optimizer failed: no such rate"));
}
}  // namespace
}  // namespace penstock
