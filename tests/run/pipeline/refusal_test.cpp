#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(PipelineRefusal, NeverStartsAnInvalidSchedule) {
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

TEST(PipelineRefusal, ChecksTheStagesItIsGiven) {
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

TEST(PipelineRefusal, SaysWhatIsMissingForTraining) {
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

TEST(PipelineRefusal, RefusesALossThatIsNoScalar) {
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

TEST(PipelineRefusal, RefusesToSendWhatIsNoValue) {
  ScheduleGPipe pipeline(
      make_stages([](torch::Tensor x) { return std::vector<std::vector<torch::Tensor>>{{x}}; },
                  [](torch::Tensor x) { return x; }),
      {.num_microbatches = 1});
  EXPECT_THAT(
      message_of([&] { pipeline.eval({torch::ones({1})}); }),
      HasSubstr("stage 0 returned [[float tensor [1]]]; a stage that is not the last must"));
}

TEST(PipelineRefusal, FindsSchedulesByName) {
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
