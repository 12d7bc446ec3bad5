#include "penstock/run/stage/pipeline_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(PipelineStage, RunsTheForwardOfAMicrobatchOnceAtATime) {
  const torch::Tensor weight = parameter(2);
  const StageList stages = make_stages([weight](torch::Tensor x) { return x * weight; });
  PipelineStage& stage = *stages.front();
  const PipelineStage::Step step{.is_training = true, .num_microbatches = 2};
  const auto forward = [&](int microbatch) { stage.forward(microbatch, {torch::ones({1})}, {}); };
  stage.begin_step(step);
  forward(0);
  EXPECT_EQ(message_of([&] { forward(0); }),
            "forward of microbatch 0 on stage 0: it has run already, and its backward has not");
  EXPECT_EQ(message_of([&] { forward(2); }),
            "forward of microbatch 2 on stage 0: the step has 2 microbatches, numbered from 0");
  EXPECT_EQ(message_of([&] { forward(-1); }),
            "forward of microbatch -1 on stage 0: the step has 2 microbatches, numbered from 0");
  EXPECT_EQ(stage.num_live_microbatches(), 1);
  stage.begin_step(step);
  EXPECT_EQ(stage.num_live_microbatches(), 0);
}

TEST(PipelineStage, SaysWhatToDoAboutAFirstOperatorInPlace) {
  const torch::Tensor weight = parameter(2);
  Schedule1F1B pipeline(make_stages([weight](torch::Tensor x) { return x * weight; },
                                    [](torch::Tensor x) { return x.relu_(); }),
                        {.num_microbatches = 1, .loss = sum_of_products});
  EXPECT_THAT(message_of([&] { pipeline.step({torch::ones({1})}, {.target = torch::ones({1})}); }),
              HasSubstr("the inputs of a stage are such leaves, so let its first operator work out "
                        "of place, as in relu() instead of relu_(), or clone the input"));
}

}  // namespace
}  // namespace penstock
