#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"

// What is hard to use in torch.distributed.pipelining 2.14, and must not be here. The numbers are
// those of the schedules in README.md.
namespace penstock {
namespace {

using ::testing::HasSubstr;

const auto kTwice = [](const torch::Tensor& input) { return input * 2; };

// D5: a model could not have inputs with the names of the arguments of step().
TEST(Regressions, KeywordsOfAModelMayHaveAnyName) {
  const std::vector<std::string> names = {"target", "losses", "return_outputs", "loss_kwargs"};
  const auto sum = [&names](const std::vector<c10::IValue>& inputs,
                            const KeywordArguments& keywords) {
    torch::Tensor result = inputs[0].toTensor();
    for (const std::string& name : names) result = result + keywords.at(name).toTensor();
    return c10::IValue(result);
  };
  const auto stage =
      make_stage_module(StageForward(sum), {.keywords = {names.begin(), names.end()}});
  Schedule1F1B pipeline(make_stages({stage}), {.num_microbatches = 2, .loss = sum_of_products});
  KeywordArguments keywords;
  for (const std::string& name : names) keywords[name] = torch::tensor({10.0, 20.0});
  const StepResult result = pipeline.eval(
      {torch::tensor({1.0, 2.0})}, {.target = torch::ones({2}), .kwargs = std::move(keywords)});
  EXPECT_TRUE(torch::equal(result.output.toTensor(), torch::tensor({41.0, 82.0})));
  EXPECT_EQ(result.losses.size(), 2U);
}

// D6: a target without a loss was ignored, and an evaluation without a target failed.
TEST(Regressions, ATargetAndALossNeedEachOtherInTrainingOnly) {
  const torch::Tensor batch = torch::ones({2});
  ScheduleGPipe without_loss(make_stages(kTwice), {.num_microbatches = 2});
  EXPECT_THAT(message_of([&] { without_loss.eval({batch}, {.target = batch}); }),
              HasSubstr("a target is of no use without ScheduleOptions::loss"));
  ScheduleGPipe with_loss(make_stages(kTwice), {.num_microbatches = 2, .loss = sum_of_products});
  EXPECT_TRUE(with_loss.eval({batch}).losses.empty());
}

// D9, D10: forwards alone were no valid order, and with a loss they wanted a target and refused it.
TEST(Regressions, ForwardsAloneComputeLosses) {
  const std::vector<Schedule> orders = {
      make_schedule("ForwardOnly", {.num_ranks = 2, .num_microbatches = 3}),
      read_csv("0F2,0F0,0F1\n1F0,1F2,1F1\n", "forwards.csv")};
  const torch::Tensor inputs = torch::tensor({1.0, 2.0, 3.0});
  const torch::Tensor targets = torch::tensor({5.0, 6.0, 7.0});
  for (const Schedule& order : orders) {
    PipelineSchedule pipeline(make_stages(kTwice, kTwice), order,
                              {.num_microbatches = 3, .loss = sum_of_products});
    const StepResult result = pipeline.eval({inputs}, {.target = targets});
    EXPECT_TRUE(torch::equal(result.output.toTensor(), 4 * inputs));
    EXPECT_TRUE(torch::equal(torch::stack(result.losses), 4 * inputs * targets));
    EXPECT_TRUE(pipeline.eval({inputs}).losses.empty());
    EXPECT_THAT(message_of([&] { pipeline.step({inputs}, {.target = targets}); }),
                HasSubstr("the schedule has no backwards to train with; call eval()"));
  }
}

// D11: one of the schedules could not be told how to split its inputs.
TEST(Regressions, EveryScheduleSplitsInputsAsAsked) {
  for (const ScheduleFamily& family : schedule_families()) {
    SCOPED_TRACE(family.name);
    const Schedule order = make_schedule(family.name, {.num_ranks = 2, .num_microbatches = 2});
    std::vector<std::shared_ptr<StageModule>> modules;
    for (int stage = 0; stage < extent_of(order).num_stages; ++stage) {
      modules.push_back(make_stage_module([](torch::Tensor columns) {
        EXPECT_EQ(columns.sizes(), at::IntArrayRef({3, 1}));
        return columns;
      }));
    }
    PipelineSchedule pipeline(make_stages(modules), order,
                              {.num_microbatches = 2,
                               .split = {.args = std::vector<ChunkSpec>{ChunkSpec::split(1)}},
                               .output_merge_spec = ChunkSpec::split(1)});
    const torch::Tensor inputs = torch::arange(6.0).reshape({3, 2});
    EXPECT_TRUE(torch::equal(pipeline.eval({inputs}).output.toTensor(), inputs));
  }
}

}  // namespace
}  // namespace penstock
