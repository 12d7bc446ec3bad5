#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/train/internal/searched_plan.h"
#include "penstock/run/train/pipeline_plan.h"
#include "penstock/run/train/run_figures.h"
#include "penstock/run/train/tensor_data.h"
#include "penstock/run/train/text_generation.h"
#include "penstock/run/train/token_data.h"
#include "penstock/run/train/training_loss.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/small_run.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

SmallRunOptions request_for(const std::string& schedule, int num_ranks) {
  return {.schedule = schedule, .num_ranks = num_ranks};
}
SmallRunOptions request_for(const std::string& schedule, int num_ranks, const ModelOptions& model,
                            const std::shared_ptr<const Dataset>& data) {
  return {.schedule = schedule, .num_ranks = num_ranks, .model = model, .data = data};
}

TEST(Trainer, HasTheSameLossesUnderEverySchedule) {
  const std::vector<double> expected = SmallRun(request_for("1F1B", 1)).losses_of(4);
  EXPECT_LT(expected.back(), expected.front());
  for (const ScheduleFamily& family : schedule_families()) {
    if (family.name == "ForwardOnly") continue;
    for (const int num_ranks : {1, 2, 4}) {
      if (family.num_ranks != ScheduleFamily::kAnyNumber && family.num_ranks != num_ranks) continue;
      SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(num_ranks));
      EXPECT_EQ(SmallRun(request_for(std::string(family.name), num_ranks)).losses_of(4), expected);
    }
  }
  EXPECT_EQ(SmallRun(request_for("search", 2)).losses_of(4), expected);
}

TEST(Trainer, TrainsTheOtherModels) {
  const auto points = make_points(1);
  const auto stripes = make_stripes(1);
  const ModelOptions mlp{.name = "mlp", .layers = 4, .width = 8};
  const ModelOptions resnet{.name = "resnet", .layers = 3, .width = 4};
  const auto expected = SmallRun(request_for("GPipe", 1, mlp, points)).losses_of(3);
  EXPECT_EQ(SmallRun(request_for("ZBV", 2, mlp, points)).losses_of(3), expected);
  const auto pictures = SmallRun(request_for("GPipe", 1, resnet, stripes)).losses_of(3);
  EXPECT_EQ(SmallRun(request_for("ZB-H1", 3, resnet, stripes)).losses_of(3), pictures);
}

TEST(Trainer, GoesOnUnderAnotherScheduleAsIfNothingHadHappened) {
  const testing::TemporaryFolder folder;
  const std::vector<double> expected = SmallRun(request_for("1F1B", 1)).losses_of(6);
  SmallRun first(request_for("ZBV", 4));
  EXPECT_EQ(first.losses_of(3), std::vector<double>(expected.begin(), expected.begin() + 3));
  const auto checkpoint = first.trainer->save(folder.path(), 0, "{}");
  for (const int num_ranks : {1, 3}) {
    SmallRun second(request_for("1F1B", num_ranks));
    second.trainer->resume(checkpoint);
    EXPECT_EQ(second.trainer->num_steps_done(), 3);
    EXPECT_EQ(second.losses_of(3), std::vector<double>(expected.begin() + 3, expected.end()));
  }
}

TEST(Trainer, TellsHowAStepWent) {
  SmallRun run(request_for("1F1B", 2));
  const StepFigures figures = run.trainer->step();
  EXPECT_EQ(figures.step, 1);
  EXPECT_EQ(figures.learning_rate, 0.02);
  EXPECT_GT(figures.gradient_norm, 0);
  EXPECT_THAT(figures.bubble, AllOf(Ge(0), Lt(1)));
  EXPECT_GT(figures.seconds, 0);
}

// Not to be repaired by going on.
TEST(Trainer, GivesUpIfGradientsStayInfinite) {
  SmallRun run(request_for("1F1B", 2));
  const torch::NoGradGuard no_gradients;
  const torch::Tensor weight = run.pipeline->schedule().parameters().front();
  const torch::Tensor kept = weight.clone();
  weight.fill_(std::numeric_limits<float>::infinity());
  const torch::AutoGradMode with_gradients(true);
  EXPECT_THAT(message_of([&] { run.losses_of(30); }),
              HasSubstr("step 20: the gradients are not finite, for the 20th time in a row"));
}

TEST(Evaluate, CoversTheDataInFullBatches) {
  SmallRun run(request_for("1F1B", 2));
  run.pipeline->train(false);
  const auto schedule = run.pipeline->make_forward_pipelines(2);
  // 394 places, every sixth: 66 samples.
  EXPECT_EQ(evaluate(schedule->replica(0), *run.data, 8, 1000).num_samples, 64);
  const Evaluation two = evaluate(schedule->replica(0), *run.data, 8, 2);
  EXPECT_EQ(two.num_samples, 16);
  EXPECT_EQ(two.loss, evaluate(schedule->replica(0), *run.data, 8, 2).loss);
  EXPECT_THAT(message_of([&] { evaluate(schedule->replica(0), *run.data, 100, 1); }),
              HasSubstr("there are 66 samples to evaluate with, but a batch has 100"));
}

TEST(GenerateText, IsTheSameUnderEveryPlacement) {
  torch::Tensor bytes = torch::arange(300, torch::kInt).remainder(50).add(60).to(torch::kByte);
  const auto data = std::make_shared<TokenData>(
      bytes, TokenDataOptions{.context = 6, .vocabulary = 256}, "bytes");
  const auto text_of = [&](const std::string& schedule, int num_ranks) {
    SmallRun run(request_for(schedule, num_ranks, small_gpt(), data));
    run.pipeline->train(false);
    return generate_text(*run.pipeline, "ab", {.context = 6, .num_tokens = 12, .seed = 4});
  };
  const std::string expected = text_of("1F1B", 1);
  EXPECT_EQ(expected.size(), 14U);
  EXPECT_EQ(text_of("ZBV", 2), expected);
  EXPECT_EQ(text_of("1F1B", 3), expected);
}

TEST(RunFigures, DescribeEveryRank) {
  SmallRun run(request_for("1F1B", 2));
  run.losses_of(3);
  const RunFigures figures = gather_figures(*run.pipeline, run.trainer->optimizer());
  ASSERT_EQ(figures.ranks.size(), 2U);
  std::int64_t parameter_bytes = 0;
  for (const RankMemory& memory : figures.ranks) {
    parameter_bytes += memory.parameter_bytes;
    EXPECT_EQ(memory.gradient_bytes, memory.parameter_bytes);
    EXPECT_EQ(memory.optimizer_bytes, 2 * memory.parameter_bytes);  // two averages
    EXPECT_GT(memory.activation_bytes, 0);
  }
  EXPECT_EQ(parameter_bytes, 4 * run.model.num_parameters);
  EXPECT_GT(figures.efficiency(), 0);
  EXPECT_GT(figures.predicted.makespan, Duration::zero());
  const auto entries = report_entries(figures);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(entries[0].is_measured);
  EXPECT_FALSE(entries[1].is_measured);
}

TEST(PipelinePlan, SearchLeavesTheModelAsItWas) {
  const auto stripes = make_stripes(1);
  const ModelOptions resnet{.name = "resnet", .layers = 3, .width = 4};
  const RunModel model = make_run_model(resnet, *stripes, 2, kSmallSeed);
  std::map<std::string, torch::Tensor> before;
  for (const auto& tensor : model.captured.tensors) before[tensor.name] = tensor.tensor.clone();
  const Batch batch = stripes->take({0, 1, 2, 3, 4, 5, 6, 7});
  const PipelinePlan plan =
      make_plan(model, {.schedule = "search", .num_ranks = 2, .num_microbatches = 4},
                make_loss("auto", batch.targets), batch);
  EXPECT_THAT(plan.remark, HasSubstr("predicted bubble"));
  EXPECT_TRUE(check(lower(plan.schedule, {.sharding = false})).is_valid());
  EXPECT_EQ(extent_of(plan.schedule).num_stages, plan.num_stages());
  for (const auto& tensor : model.captured.tensors) {
    EXPECT_TRUE(tensor.tensor.equal(before[tensor.name])) << tensor.name;
    EXPECT_FALSE(tensor.tensor.grad().defined()) << tensor.name;
  }
}

// The loss is no part of the model, and not measured with it; here, it takes as long.
TEST(PipelinePlan, SearchMakesRoomForACostlyLoss) {
  constexpr int kLayers = 8;
  const auto points = make_points(1);
  const RunModel model =
      make_run_model({.name = "mlp", .layers = kLayers, .width = 64}, *points, 2, kSmallSeed);
  const Batch batch = points->take({0, 1, 2, 3, 4, 5, 6, 7});
  const LossFunction costly = [](const torch::Tensor& output, const torch::Tensor& /*target*/) {
    torch::Tensor value = output;
    for (int layer = 0; layer < 4 * kLayers; ++layer) value = torch::gelu(value);
    return value.square().mean();
  };
  PlanRequest request{
      .schedule = "search", .num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 1};
  std::string told;
  request.tell = [&told](const std::string& line) { told += line + "\n"; };
  const PipelinePlan plan = make_plan(model, request, costly, batch);
  const PipelinePlan usual =
      make_plan(model, {.num_ranks = 2, .num_microbatches = 4}, costly, batch);
  ASSERT_EQ(plan.cuts.size(), 1U);
  EXPECT_GT(plan.cuts.front(), usual.cuts.front());
  EXPECT_EQ(told,
            "search: training 4 steps to measure 2 stages\n"
            "search: the stages are uneven; cutting the model anew\n"
            "search: training 4 steps to measure 2 stages\n");
  EXPECT_THAT(plan.remark, HasSubstr("search: 1 stage per rank"));
  EXPECT_THAT(plan.remark, ContainsRegex("stages take [0-9.]+, [0-9.]+ % of the time, cut anew"));
}

using std::chrono::microseconds;

StageCost stage_cost(int forward, int backward) {
  StageCost cost;
  cost.forward = microseconds(forward);
  cost.input_backward = microseconds(backward / 2);
  cost.weight_backward = microseconds(backward - backward / 2);
  return cost;
}

TEST(CorrectedCosts, KeepTheSharesOfPiecesAndLeaveTheLossWithTheLast) {
  const auto piece = [](int forward, int backward) {
    LayerCost cost;
    cost.forward = microseconds(forward);
    cost.backward = microseconds(backward);
    return cost;
  };
  PolicyReport balance;
  balance.pieces = {piece(10, 20), piece(30, 60), piece(20, 40), piece(20, 40)};
  balance.stages = {
      {.first_layer = 0, .end_layer = 2, .forward = microseconds(40), .backward = microseconds(80)},
      {.first_layer = 2,
       .end_layer = 4,
       .forward = microseconds(40),
       .backward = microseconds(80)}};
  CostModel measured;
  measured.stages = {stage_cost(80, 120), stage_cost(180, 121)};
  // Twice the forwards and 1.5 times the backwards; of the last stage, 100 and 1 are the loss.
  EXPECT_THAT(corrected_costs(balance, measured),
              ElementsAre(piece(20, 30), piece(60, 90), piece(40, 60), piece(140, 61)));
  // The last stage is the faster one: no loss to be seen.
  measured.stages = {stage_cost(80, 160), stage_cost(20, 40)};
  EXPECT_THAT(corrected_costs(balance, measured),
              ElementsAre(piece(20, 40), piece(60, 120), piece(10, 20), piece(10, 20)));
}

// As any schedule file that takes microbatches in an order of its own.
TEST(PipelinePlan, NumbersMicrobatchesInTheOrderOfTheirGradients) {
  const auto points = make_points(1);
  const RunModel model = make_run_model({.name = "mlp"}, *points, 2, kSmallSeed);
  const Batch batch = points->take({0, 1, 2, 3});
  const PipelinePlan plan = make_plan(model,
                                      {.schedule = "mine.csv",
                                       .custom = read_csv("0F0,0F1,0B1,0B0\n", "mine.csv"),
                                       .num_ranks = 1,
                                       .num_microbatches = 2},
                                      make_loss("auto", batch.targets), batch);
  EXPECT_EQ(write_csv(plan.schedule), "0F1,0F0,0B0,0B1\n");
}

TEST(PipelinePlan, GoesToOtherProcessesAsText) {
  const PipelinePlan plan{
      .name = "1F1B",
      .schedule = make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 3}),
      .cuts = {7},
      .remark = "a \"remark\""};
  const PipelinePlan other = read_plan(write_plan(plan));
  EXPECT_EQ(other.name, plan.name);
  EXPECT_EQ(compute_actions(other.schedule), compute_actions(plan.schedule));
  EXPECT_EQ(other.cuts, plan.cuts);
  EXPECT_EQ(other.remark, plan.remark);
}

TEST(PipelinePlan, EvaluatesWhereStagesArePlaced) {
  const Schedule zbv = make_schedule("ZBV", {.num_ranks = 3, .num_microbatches = 4});
  const Schedule forwards = lower(forward_order(zbv, 2), {.sharding = false});
  EXPECT_TRUE(check(forwards).is_valid());
  EXPECT_EQ(extent_of(forwards).num_stages, 6);
  EXPECT_EQ(extent_of(forwards).num_microbatches, 2);
}

TEST(PipelinePlan, RefusesSchedulesOfAnotherShape) {
  const auto points = make_points(1);
  const RunModel model = make_run_model({.name = "mlp"}, *points, 2, kSmallSeed);
  const Batch batch = points->take({0, 1, 2, 3});
  const auto plan = [&](const PlanRequest& request) {
    return message_of([&] { make_plan(model, request, make_loss("auto", batch.targets), batch); });
  };
  EXPECT_EQ(plan({.schedule = "mine.csv",
                  .custom = make_schedule("1F1B", {.num_ranks = 3, .num_microbatches = 4}),
                  .num_ranks = 2,
                  .num_microbatches = 4}),
            "the schedule \"mine.csv\" is for 3 ranks and 4 microbatches, but the run has 2 and 4; "
            "give it as many ranks and microbatches as the schedule has");
  EXPECT_THAT(plan({.schedule = "1f1c"}), HasSubstr("unknown schedule \"1f1c\""));
  EXPECT_THAT(plan({.schedule = "1f1b", .num_ranks = 64}),
              HasSubstr("cannot be cut into 64 stages"));
}

}  // namespace
}  // namespace penstock
