#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// DualPipeV on 2 ranks: the schedule with containers.
struct Overlapping {
  static constexpr int kMicrobatches = 6;

  TestModel model = mlp_model();
  Schedule order = make_schedule("DualPipeV", {.num_ranks = 2, .num_microbatches = kMicrobatches});
  Blocks blocks = model.make(4);
  torch::Tensor inputs = model.make_inputs(12);
  torch::Tensor targets = model.make_targets(12);

  void train(CustomFunctions functions) {
    PipelineSchedule pipeline(make_stages(blocks), order,
                              {.num_microbatches = kMicrobatches,
                               .loss = model.loss,
                               .custom_functions = std::move(functions)});
    pipeline.step({inputs}, {.target = targets});
  }

  void expect_trained_right() {
    std::vector<int> microbatches;
    for (int index = 0; index < kMicrobatches; ++index) microbatches.push_back(index);
    const TrainedStep expected =
        train_without_pipeline(model, model.make(4), inputs, targets, microbatches);
    expect_equal(gradients_of(parameters_of(blocks)), expected.gradients, "gradient");
  }
};

TEST(CustomFunctions, AreCalledInsideOfContainersToo) {
  Overlapping subject;
  std::atomic<int> num_forwards = 0;
  std::atomic<int> num_backwards = 0;
  CustomFunctions functions;
  functions[ActionKind::Forward] = [&](ActionContext& context) {
    EXPECT_EQ(context.stage().index(), context.action().stage);
    ++num_forwards;
    context.run();
  };
  const auto count_backward = [&](ActionContext& context) {
    ++num_backwards;
    context.run();
  };
  functions[ActionKind::FullBackward] = count_backward;
  functions[ActionKind::InputBackward] = count_backward;
  subject.train(std::move(functions));
  EXPECT_EQ(num_forwards, 4 * Overlapping::kMicrobatches);
  EXPECT_EQ(num_backwards, 4 * Overlapping::kMicrobatches);
  subject.expect_trained_right();
}

TEST(CustomFunctions, RunAContainersPartsInAnyOrderAndOnTwoThreads) {
  Overlapping subject;
  std::atomic<int> num_containers = 0;
  CustomFunctions functions;
  functions[ActionKind::Overlap] = [&](ActionContext& context) {
    ++num_containers;
    ASSERT_EQ(context.action().parts.size(), 2U);
    std::thread other([&] { context.run_part(1); });
    context.run_part(0);
    other.join();
  };
  subject.train(std::move(functions));
  EXPECT_GT(num_containers, 0);
  subject.expect_trained_right();
}

TEST(CustomFunctions, ExistForEveryKindButSendsAndReceives) {
  Overlapping subject;
  std::mutex mutex;
  std::set<std::string> seen;
  CustomFunctions functions;
  for (std::size_t index = 0; index < kNumActionKinds; ++index) {
    const auto kind = static_cast<ActionKind>(index);
    if (is_send(kind) || is_receive(kind)) continue;
    functions[kind] = [&](ActionContext& context) {
      {
        const std::lock_guard lock(mutex);
        seen.insert(std::string(kind_text(context.action().kind)));
      }
      context.run();
    };
  }
  subject.train(std::move(functions));
  EXPECT_THAT(seen, ::testing::IsSupersetOf({"F", "I", "W", "B", "OVERLAP_F_B", "REDUCE_GRAD"}));
  subject.expect_trained_right();
}

TEST(CustomFunctions, MustRunWhatTheyStandFor) {
  Overlapping subject;
  CustomFunctions functions;
  functions[ActionKind::Forward] = [](ActionContext&) {};
  try {
    subject.train(std::move(functions));
    FAIL() << "nothing was thrown";
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the custom function of F ran 0 of 1 action"));
  }
}

TEST(CustomFunctions, MustRunEachPartOnce) {
  const auto failure_with = [](ActionKind kind, CustomFunction function) {
    Overlapping subject;
    CustomFunctions functions;
    functions[kind] = std::move(function);
    return message_of([&] { subject.train(std::move(functions)); });
  };
  const std::string expected =
      " or a part of it a second time; it must call run() once, or run_part() once for each part";
  EXPECT_THAT(failure_with(ActionKind::Overlap,
                           [](ActionContext& context) {
                             context.run_part(1);
                             context.run_part(1);
                           }),
              AllOf(HasSubstr("the custom function of OVERLAP_F_B runs ("), HasSubstr(expected)));
  EXPECT_THAT(failure_with(ActionKind::Forward,
                           [](ActionContext& context) {
                             context.run();
                             context.run();
                           }),
              AllOf(HasSubstr("the custom function of F runs "), HasSubstr(expected)));
  EXPECT_THAT(
      failure_with(ActionKind::Overlap, [](ActionContext& context) { context.run_part(1); }),
      HasSubstr("the custom function of OVERLAP_F_B ran 1 of 2 actions"));
}

TEST(CustomFunctions, LeaveNothingOfAFailedStepToTheNext) {
  const torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  bool runs_twice = true;
  ScheduleOptions options{.num_microbatches = 2,
                          .loss = [](const torch::Tensor& output) { return output.sum(); }};
  options.custom_functions[ActionKind::Forward] = [&](ActionContext& context) {
    context.run();
    if (runs_twice) context.run();
  };
  Schedule1F1B pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }), options);
  EXPECT_THAT(message_of([&] { pipeline.step({torch::ones({2})}); }), HasSubstr("a second time"));
  EXPECT_EQ(pipeline.stages()[0]->num_live_microbatches(), 0);
  runs_twice = false;
  pipeline.step({torch::ones({2})});
  EXPECT_EQ(pipeline.peak_activations(), std::vector<int>{1});
}

TEST(CustomFunctions, SeeWhatTheStepWasGiven) {
  std::vector<std::string> seen;
  ScheduleOptions options{
      .num_microbatches = 2,
      .loss = [](const c10::IValue& output, const c10::IValue& target, const KeywordArguments&) {
        return (output.toTensor() * target.toTensor()).sum();
      }};
  options.custom_functions[ActionKind::Forward] = [&](ActionContext& context) {
    seen.push_back(describe(context.inputs().args[0]) + " to " + describe(context.target()) +
                   " with " + describe(context.loss_keywords().at("scale")));
    context.run();
  };
  std::string refusal;
  options.custom_functions[ActionKind::ReduceGrad] = [&](ActionContext& context) {
    refusal = message_of([&] { context.target(); });
    context.run();
  };
  const torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  Schedule1F1B pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }), options);
  pipeline.step({torch::ones({3})}, {.target = torch::ones({3}), .loss_kwargs = {{"scale", 3}}});
  EXPECT_THAT(seen, ::testing::ElementsAre("float tensor [2] to float tensor [2] with 3",
                                           "float tensor [1] to float tensor [1] with 3"));
  EXPECT_EQ(refusal, "0REDUCE_GRAD has no microbatch of its own");
}

TEST(CustomFunctions, MayFailLikeAnyAction) {
  Overlapping subject;
  CustomFunctions functions;
  functions[ActionKind::ReduceGrad] = [](ActionContext& context) {
    throw std::runtime_error("no network on stage " + std::to_string(context.stage().index()));
  };
  try {
    subject.train(std::move(functions));
    FAIL() << "nothing was thrown";
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), HasSubstr("REDUCE_GRAD): no network on stage "));
  }
}

}  // namespace
}  // namespace penstock
