#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// An MLP whose stage `bad_stage` can be told to throw.
class FragileBlock final : public Block {
 public:
  FragileBlock(std::shared_ptr<Block> inner, std::shared_ptr<int> fails_on)
      : inner_(std::move(inner)), fails_on_(std::move(fails_on)) {
    register_module("inner", inner_);
  }
  torch::Tensor forward(torch::Tensor input) override {
    if (*fails_on_ == 0) throw std::runtime_error("the cable was cut");
    --*fails_on_;
    return inner_->forward(input);
  }

 private:
  std::shared_ptr<Block> inner_;
  std::shared_ptr<int> fails_on_;
};

constexpr int kNever = 1'000'000;

class Failure : public testing::TestWithParam<const char*> {};

TEST_P(Failure, NamesRankStepAndActionAndLeavesNothingBehind) {
  const TestModel model = mlp_model();
  const Schedule order = make_schedule(GetParam(), {.num_ranks = 2, .num_microbatches = 4});
  const int num_stages = extent_of(order).num_stages;
  Blocks blocks = model.make(num_stages);
  const Blocks healthy = model.make(num_stages);
  const auto fails_on = std::make_shared<int>(2);
  blocks.back() = std::make_shared<FragileBlock>(blocks.back(), fails_on);
  PipelineSchedule pipeline(make_stages(blocks), order,
                            {.num_microbatches = 4, .loss = model.loss});
  const torch::Tensor inputs = model.make_inputs(8);
  const torch::Tensor targets = model.make_targets(8);

  try {
    pipeline.step({inputs}, {.target = targets});
    FAIL() << "the step did not fail";
  } catch (const StepError& error) {
    const std::string action = std::to_string(num_stages - 1) + "F2";
    EXPECT_THAT(error.action(), HasSubstr(action));
    EXPECT_THAT(error.what(), StartsWith("rank " + std::to_string(error.position().rank) +
                                         ", step " + std::to_string(error.position().step)));
    EXPECT_THAT(error.what(), HasSubstr("the module of stage " + std::to_string(num_stages - 1) +
                                        " failed on inputs (float tensor [2, 12]"));
    EXPECT_THAT(error.what(), HasSubstr("the cable was cut"));
  }
  // The retry is as good as a first try, once the gradients of the failed one are gone.
  *fails_on = kNever;
  for (const torch::Tensor& parameter : parameters_of(blocks)) parameter.mutable_grad().reset();
  const StepResult result = pipeline.step({inputs}, {.target = targets});
  std::vector<int> microbatches = {0, 1, 2, 3};
  if (GetParam() == std::string("LoopedBFS")) microbatches = {3, 2, 1, 0};
  const TrainedStep expected =
      train_without_pipeline(model, healthy, inputs, targets, microbatches);
  expect_equal(gradients_of(parameters_of(blocks)), expected.gradients, "gradient");
  expect_equal(result.losses, expected.losses, "loss");
}

INSTANTIATE_TEST_SUITE_P(Pipeline, Failure,
                         testing::Values("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS",
                                         "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"));

TEST(PipelineFailure, StopsRanksThatWaitForTheOneThatFailed) {
  const auto begin = std::chrono::steady_clock::now();
  StageList stages;
  for (int index = 0; index < 3; ++index) {
    stages.push_back(
        std::make_shared<PipelineStage>(make_stage_module([index](torch::Tensor x) {
                                          if (index == 0 && x[0].item<double>() > 0)
                                            throw std::runtime_error("broken");
                                          return x;
                                        }),
                                        StagePosition{.index = index, .num_stages = 3}));
  }
  // The deadline would make this test last an hour.
  Schedule1F1B pipeline(stages, {.num_microbatches = 2, .deadline = std::chrono::hours(1)});
  EXPECT_THAT(message_of([&] { pipeline.eval({torch::ones({2})}); }),
              StartsWith("rank 0, step 0 (0F0): "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(10));
  EXPECT_EQ(pipeline.eval({torch::zeros({2})}).output.toTensor().size(0), 2);
}

TEST(PipelineFailure, ExplainsAWaitThatTookTooLong) {
  StageList stages;
  const auto slow = [](torch::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return x;
  };
  stages.push_back(std::make_shared<PipelineStage>(make_stage_module(slow),
                                                   StagePosition{.index = 0, .num_stages = 2}));
  stages.push_back(
      std::make_shared<PipelineStage>(make_stage_module([](torch::Tensor x) { return x; }),
                                      StagePosition{.index = 1, .num_stages = 2}));
  Schedule1F1B pipeline(stages, {.num_microbatches = 1, .deadline = std::chrono::milliseconds(20)});
  EXPECT_EQ(message_of([&] { pipeline.eval({torch::ones({1})}); }),
            "rank 1, step 1 (1F0): waited 0.02 s for the activations of microbatch 0 from rank 0, "
            "which has not finished anything");
}

TEST(PipelineFailure, NeverStartsAnInvalidSchedule) {
  const TestModel model = mlp_model();
  const auto make = [&](const char* csv, int num_stages, int num_microbatches) {
    return message_of([&] {
      PipelineSchedule pipeline(make_stages(model.make(num_stages)), read_csv(csv, "bad.csv"),
                                {.num_microbatches = num_microbatches, .loss = model.loss});
    });
  };
  EXPECT_THAT(make("0F0,0B0,0F1\n", 1, 2), HasSubstr("0B1 is missing"));
  EXPECT_THAT(make("0B0,0F0\n", 1, 1), HasSubstr("before its forward"));
  EXPECT_THAT(make("0F0,0F0,0B0,0B0\n", 1, 1), HasSubstr("0F0"));
  EXPECT_THAT(make("0F0,0B0\n1F0,1B0\n", 3, 1), HasSubstr("stage 2"));
  EXPECT_THAT(make("0F0,0B0\n", 1, 2), HasSubstr("0F1 is missing"));
}

TEST(PipelineFailure, ChecksTheStagesItIsGiven) {
  const TestModel model = mlp_model();
  const auto stage = [&](int index, int num_stages) {
    return std::make_shared<PipelineStage>(make_stage_module(model.make(1).front()),
                                           StagePosition{.index = index, .num_stages = num_stages});
  };
  const ScheduleOptions options{.num_microbatches = 2, .loss = model.loss};
  EXPECT_THAT(message_of([&] {
                Schedule1F1B({stage(0, 2), stage(0, 2)}, options);
              }),
              HasSubstr("stage 1 is there twice, or its place is taken"));
  EXPECT_THAT(message_of([&] {
                Schedule1F1B({stage(0, 3), stage(1, 3)}, options);
              }),
              HasSubstr("stage 0 says that there are 3 stages, but the pipeline was given 2"));
  EXPECT_THAT(message_of([&] { Schedule1F1B({}, options); }), HasSubstr("at least one stage"));
  EXPECT_THAT(message_of([&] { stage(2, 2); }), HasSubstr("stage 2 is not one of 2 stages"));
  EXPECT_THAT(message_of([&] { stage(-1, 2); }), HasSubstr("stage -1 is not one of 2 stages"));
  // In any order: the index counts, not the place in the list.
  Schedule1F1B pipeline({stage(1, 2), stage(0, 2)}, options);
  EXPECT_EQ(pipeline.stages()[0]->index(), 0);
}

TEST(PipelineFailure, SaysWhatIsMissingForTraining) {
  const TestModel model = mlp_model();
  const Blocks blocks = model.make(1);
  ScheduleGPipe pipeline(make_stages(blocks), {.num_microbatches = 2, .loss = model.loss});
  const torch::Tensor inputs = model.make_inputs(4);
  EXPECT_THAT(message_of([&] { pipeline.step({inputs}); }), HasSubstr("StepOptions::target"));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_THAT(message_of([&] { pipeline.step({inputs}, {.target = model.make_targets(4)}); }),
                HasSubstr("call eval()"));
  }
  ScheduleGPipe untrained(make_stages(blocks), {.num_microbatches = 2});
  EXPECT_THAT(message_of([&] { untrained.step({inputs}, {.target = inputs}); }),
              HasSubstr("ScheduleOptions::loss"));
  EXPECT_THAT(message_of([&] { pipeline.step({model.make_inputs(1)}, {.target = inputs}); }),
              HasSubstr("cannot split a batch of 1 row into 2 microbatches"));
}

TEST(PipelineFailure, RefusesALossThatIsNoScalar) {
  const TestModel model = mlp_model();
  for (const char* name : {"1F1B", "ZB-H1"}) {
    PipelineSchedule pipeline(
        make_stages(model.make(2)), make_schedule(name, {.num_ranks = 2, .num_microbatches = 1}),
        {.num_microbatches = 1,
         .loss = [](const torch::Tensor& output, const torch::Tensor& target) {
           return (output - target).abs();
         }});
    EXPECT_THAT(message_of([&] {
                  pipeline.step({model.make_inputs(2)}, {.target = model.make_targets(2)});
                }),
                HasSubstr("the loss function returned float tensor [2, 12]"));
  }
}

TEST(PipelineFailure, RefusesToSendWhatIsNoValue) {
  ScheduleGPipe pipeline(
      {std::make_shared<PipelineStage>(make_stage_module([](torch::Tensor x) {
                                         return std::vector<std::vector<torch::Tensor>>{{x}};
                                       }),
                                       StagePosition{.index = 0, .num_stages = 2}),
       std::make_shared<PipelineStage>(make_stage_module([](torch::Tensor x) { return x; }),
                                       StagePosition{.index = 1, .num_stages = 2})},
      {.num_microbatches = 1});
  EXPECT_THAT(
      message_of([&] { pipeline.eval({torch::ones({1})}); }),
      HasSubstr("stage 0 returned [[float tensor [1]]]; a stage that is not the last must"));
}

TEST(PipelineFailure, FindsSchedulesByName) {
  const TestModel model = mlp_model();
  const auto pipeline = get_schedule_class("scheduleinterleaved1f1b")(
      make_stages(model.make(4)), {.num_microbatches = 2, .loss = model.loss});
  EXPECT_EQ(pipeline->num_ranks(), 2);
  EXPECT_THAT(message_of([] { get_schedule_class("1F1C"); }), HasSubstr("did you mean \"1F1B\"?"));
  EXPECT_THAT(message_of([&] {
                get_schedule_class("zbv")(make_stages(model.make(3)), {.num_microbatches = 2});
              }),
              HasSubstr("ZBVZeroBubble needs exactly 2 stages per rank, not 3"));
  EXPECT_THAT(message_of([&] {
                Schedule1F1B(make_stages(model.make(3)), {.num_microbatches = 2, .num_ranks = 2});
              }),
              HasSubstr("3 stages cannot be spread evenly over 2 ranks"));
}

}  // namespace
}  // namespace penstock
