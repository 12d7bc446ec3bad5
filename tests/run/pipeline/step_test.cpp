#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(Step, ReturnsLossesAndOutputsInTheOrderOfMicrobatches) {
  // Microbatch 1 goes first on every rank.
  const Schedule backwards_order = read_csv("0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n", "order");
  const torch::Tensor weight = parameter(2);
  PipelineSchedule pipeline(
      make_stages([weight](torch::Tensor x) { return x * weight; },
                  [](torch::Tensor x) { return x + 1; }),
      backwards_order,
      {.num_microbatches = 2,
       .loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); }});
  const StepResult result =
      pipeline.step({torch::tensor({1.0, 10.0})}, {.target = torch::zeros({2})});
  EXPECT_TRUE(torch::equal(result.output.toTensor(), torch::tensor({3.0, 21.0})));
  ASSERT_EQ(result.losses.size(), 2U);
  EXPECT_EQ(result.losses[0].item<double>(), 3);
  EXPECT_EQ(result.losses[1].item<double>(), 21);
  EXPECT_EQ(weight.grad().item<double>(), (1.0 + 10.0) / 2);
}

TEST(Step, ScalesTheGradientsOfEachStepOnce) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }),
                         {.num_microbatches = 4, .loss = sum_of_products});
  const torch::Tensor inputs = torch::tensor({1.0, 2.0, 3.0, 6.0});
  pipeline.step({inputs}, {.target = torch::ones({4})});
  EXPECT_EQ(weight.grad().item<double>(), 3);
  pipeline.step({inputs}, {.target = torch::ones({4})});
  EXPECT_EQ(weight.grad().item<double>(), 6);
}

TEST(Step, AddsGradientsUpWhenScalingIsOff) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }),
                         {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
  pipeline.step({torch::tensor({1.0, 2.0})}, {.target = torch::ones({2})});
  EXPECT_EQ(weight.grad().item<double>(), 3);
}

TEST(Step, WeighsMicrobatchesByTheirRows) {
  const torch::Tensor inputs = torch::arange(1, 6, torch::kDouble);  // 5 rows: 3 and 2
  const auto mean = [](const torch::Tensor& output, const torch::Tensor& target) {
    return (output * target).mean();
  };
  const torch::Tensor weight =
      torch::full({}, 1.0, torch::dtype(torch::kDouble).requires_grad(true));
  ScheduleGPipe pipeline(
      make_stages([weight](torch::Tensor x) { return x * weight; }),
      {.num_microbatches = 2, .loss = mean, .loss_weights = LossWeights::ByRows});
  pipeline.step({inputs}, {.target = torch::ones({5}, torch::kDouble)});
  EXPECT_DOUBLE_EQ(weight.grad().item<double>(), 3);  // the mean of the whole batch
}

// On two ranks, with 7 rows in microbatches of 3, 2 and 2.
TEST(Step, WeighsByRowsToTheBit) {
  const TestModel model = mlp_model();
  for (const char* name : {"1F1B", "ZB-H1", "Interleaved1F1B", "ZBVZeroBubble"}) {
    SCOPED_TRACE(name);
    const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 3});
    const int num_stages = extent_of(order).num_stages;
    const torch::Tensor inputs = model.make_inputs(7);
    const torch::Tensor targets = model.make_targets(7);
    const Blocks baseline = model.make(num_stages);
    const TrainedStep expected = train_without_pipeline(model, baseline, inputs, targets, {0, 1, 2},
                                                        BaselineWeights::ByRows);
    const Blocks blocks = model.make(num_stages);
    PipelineSchedule pipeline(
        make_stages(blocks), order,
        {.num_microbatches = 3, .loss = model.loss, .loss_weights = LossWeights::ByRows});
    const StepResult result = pipeline.step({inputs}, {.target = targets});
    expect_equal(result.losses, expected.losses, "loss");
    expect_equal(gradients_of(parameters_of(blocks)), expected.gradients, "gradient");

    // A target whose rows are its columns, say.
    const Blocks others = model.make(num_stages);
    PipelineSchedule of_columns(
        make_stages(others), order,
        {.num_microbatches = 3,
         .loss =
             [&model](const torch::Tensor& output, const torch::Tensor& target) {
               return model.loss(output, target.t().contiguous());
             },
         .target_chunk_spec = ChunkSpec::split(1),
         .loss_weights = LossWeights::ByRows});
    of_columns.step({inputs}, {.target = targets.t().contiguous()});
    expect_equal(gradients_of(parameters_of(others)), expected.gradients, "gradient");
  }
}

TEST(Step, SplitsTheTargetAsItsSpecSays) {
  const torch::Tensor weight = parameter(1);
  std::vector<c10::IValue> seen;
  ScheduleGPipe pipeline(
      make_stages([weight](torch::Tensor x) { return x * weight; }),
      {.num_microbatches = 2,
       .loss =
           [&seen](const c10::IValue& output, const c10::IValue& target, const KeywordArguments&) {
             seen.push_back(target);
             return output.toTensor().sum();
           },
       .target_chunk_spec =
           ChunkSpec::dict({{"scale", ChunkSpec::replicate()}, {"labels", ChunkSpec::split(-1)}}),
       .loss_weights = LossWeights::ByRows});
  c10::impl::GenericDict target(c10::StringType::get(), c10::TensorType::get());
  target.insert("scale", torch::ones({5}));
  target.insert("labels", torch::arange(6).reshape({2, 3}));
  pipeline.step({torch::tensor({1.0, 4.0})}, {.target = target});
  ASSERT_EQ(seen.size(), 2U);
  for (const c10::IValue& part : seen) {
    EXPECT_EQ(part.toGenericDict().at("scale").toTensor().size(0), 5);
  }
  EXPECT_TRUE(torch::equal(seen[1].toGenericDict().at("labels").toTensor(),
                           torch::tensor({{2}, {5}}, torch::kLong)));
  // Two of three columns, and one: not the five of the scale, which all microbatches have.
  EXPECT_FLOAT_EQ(weight.grad().item<float>(), (2 * 1.0F + 1 * 4.0F) / 3);
}

TEST(Step, CountsNoRowsOfATargetThatIsTheSameForAll) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }),
                         {.num_microbatches = 2,
                          .loss = sum_of_products,
                          .target_chunk_spec = ChunkSpec::replicate(),
                          .loss_weights = LossWeights::ByRows});
  EXPECT_EQ(message_of([&] { pipeline.step({torch::ones({2})}, {.target = torch::ones({1})}); }),
            "LossWeights::ByRows needs a target with a tensor that is split, whose rows it counts, "
            "but all of float tensor [1] is the same in every microbatch");
}

TEST(Step, PassesKeywordsToTheStagesThatTakeThem) {
  const auto scaled = [](const std::vector<c10::IValue>& inputs, const KeywordArguments& keywords) {
    return c10::IValue(inputs[0].toTensor() * keywords.at("factor").toTensor());
  };
  const auto shifted = [](const std::vector<c10::IValue>& inputs,
                          const KeywordArguments& keywords) {
    EXPECT_EQ(keywords.size(), 1U);
    return c10::IValue(inputs[0].toTensor() + keywords.at("offset").toDouble());
  };
  const StageList stages =
      make_stages({make_stage_module(StageForward(scaled), {.keywords = {"factor"}}),
                   make_stage_module(StageForward(shifted), {.keywords = {"offset"}})});
  Schedule1F1B pipeline(stages, {.num_microbatches = 2});
  const torch::Tensor inputs = torch::tensor({1.0, 2.0});
  const torch::Tensor factors = torch::tensor({10.0, 100.0});
  const StepResult result =
      pipeline.eval({inputs}, {.kwargs = {{"factor", factors}, {"offset", 0.5}}});
  EXPECT_TRUE(torch::equal(result.output.toTensor(), torch::tensor({10.5, 200.5})));

  EXPECT_EQ(message_of([&] {
              pipeline.eval({inputs}, {.kwargs = {{"facto", factors}}});
            }),
            "no stage takes a keyword input \"facto\"; did you mean \"factor\"?");
}

TEST(Step, GivesLossKeywordsToTheLossFunction) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }),
                         {.num_microbatches = 2,
                          .loss = [](const c10::IValue& output, const c10::IValue& target,
                                     const KeywordArguments& keywords) {
                            return (output.toTensor() * target.toTensor()).sum() *
                                   keywords.at("factor").toDouble();
                          }});
  const StepResult result = pipeline.step(
      {torch::tensor({1.0, 2.0})}, {.target = torch::ones({2}), .loss_kwargs = {{"factor", 10.0}}});
  EXPECT_EQ(result.losses[1].item<double>(), 20);
}

TEST(Step, CarriesSeveralValuesOfAnyShapeAndKind) {
  const torch::Tensor weight = parameter(3);
  int num_rows_seen = 0;
  PipelineSchedule pipeline(
      make_stages(
          [weight](torch::Tensor x, torch::Tensor y) {
            return std::make_tuple(x * weight, y, torch::arange(x.size(0)), x.size(0));
          },
          [&](torch::Tensor x, torch::Tensor y, torch::Tensor positions, std::int64_t rows) {
            EXPECT_EQ(positions.scalar_type(), torch::kLong);
            EXPECT_FALSE(positions.requires_grad());
            EXPECT_TRUE(x.requires_grad());
            EXPECT_FALSE(y.requires_grad()) << "its gradient would go nowhere";
            num_rows_seen += static_cast<int>(rows);
            return x * y + positions.to(torch::kFloat).unsqueeze(1);
          }),
      make_schedule("ZB-H1", {.num_ranks = 2, .num_microbatches = 3}),
      {.num_microbatches = 3, .loss = sum_of_products});
  for (const int rows : {3, 7, 4}) {  // another shape in each step, and within the second
    const torch::Tensor x = torch::ones({rows, 2});
    const torch::Tensor y = torch::full({rows, 2}, 5.0);
    weight.mutable_grad().reset();
    num_rows_seen = 0;
    pipeline.step({x, y}, {.target = torch::ones({rows, 2})});
    EXPECT_EQ(num_rows_seen, rows);
    EXPECT_NEAR(weight.grad().item<double>(), 5.0 * 2 * rows / 3, 1e-4);
  }
}

TEST(Step, TakesValuesThatGetNoGradient) {
  const torch::Tensor used = parameter(2);
  const torch::Tensor unused = parameter(2);
  for (const char* name : {"1F1B", "ZB-H1"}) {
    PipelineSchedule pipeline(
        make_stages(
            [used, unused](torch::Tensor x) { return std::make_tuple(x * used, x * unused); },
            [](torch::Tensor x, torch::Tensor) { return x; }),
        make_schedule(name, {.num_ranks = 2, .num_microbatches = 2}),
        {.num_microbatches = 2, .loss = sum_of_products});
    pipeline.step({torch::ones({2})}, {.target = torch::ones({2})});
    EXPECT_FALSE(unused.grad().defined()) << name;
  }
  EXPECT_EQ(used.grad().item<double>(), 2);
}

TEST(Step, PassesNoneBetweenStages) {
  ScheduleGPipe pipeline(
      make_stages([](torch::Tensor x) { return c10::IValue(std::make_tuple(x, c10::IValue())); },
                  [](torch::Tensor x, c10::optional<torch::Tensor> mask) {
                    return mask ? x * *mask : x + 1;
                  }),
      {.num_microbatches = 1});
  const StepResult result = pipeline.eval({torch::ones({1})});
  EXPECT_EQ(result.output.toTensor().item<double>(), 2);
}

TEST(Step, CarriesListsOfNumbers) {
  using Inputs = std::vector<c10::IValue>;
  const auto first = [](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
    const torch::Tensor x = inputs[0].toTensor();
    return c10::ivalue::Tuple::create(
        {x.flatten(), x.sizes().vec(), std::vector<double>{0.5}, c10::List<bool>({true})});
  };
  const auto second = [](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
    EXPECT_TRUE(inputs[3].toBoolList().get(0));
    return inputs[0].toTensor().view(inputs[1].toIntVector()) * inputs[2].toDoubleVector()[0];
  };
  // A list alone is one value too, and not as many as it has numbers.
  const auto sizes = [](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
    return inputs[0].toTensor().sizes().vec();
  };
  const auto ones = [](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
    return torch::ones(inputs[0].toIntVector());
  };
  const torch::Tensor x = torch::ones({2, 3}, torch::requires_grad());
  Schedule1F1B pipeline(
      make_stages(first, second),
      {.num_microbatches = 2, .loss = [](const torch::Tensor& output) { return output.sum(); }});
  EXPECT_TRUE(torch::equal(pipeline.step({x}).output.toTensor(), torch::full({2, 3}, 0.5)));
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2, 3}, 0.25)));
  ScheduleGPipe of_list(make_stages(sizes, ones), {.num_microbatches = 1});
  EXPECT_TRUE(torch::equal(of_list.eval({x}).output.toTensor(), torch::ones({2, 3})));
}

TEST(Step, AcceptsMicrobatchesThatAreSplitAlready) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(make_stages([weight](torch::Tensor x) { return x * weight; }),
                         {.num_microbatches = 2, .loss = sum_of_products});
  const PresplitBatch batch{.inputs = {{.args = {torch::ones({1})}, .kwargs = {}},
                                       {.args = {torch::ones({5})}, .kwargs = {}}},
                            .targets = {torch::ones({1}), torch::ones({5})}};
  EXPECT_EQ(pipeline.step(batch).output.toTensor().size(0), 6);
  EXPECT_EQ(weight.grad().item<double>(), 3);

  EXPECT_THAT(message_of([&] {
                pipeline.step(PresplitBatch{.inputs = {batch.inputs[0]}, .targets = batch.targets});
              }),
              HasSubstr("2"));
  EXPECT_EQ(message_of([&] {
              pipeline.step(PresplitBatch{.inputs = batch.inputs, .targets = {torch::ones({1})}});
            }),
            "there are 1 target for 2 microbatches");
}

TEST(Step, MergesOutputsAsAsked) {
  const auto stage = [](torch::Tensor x) { return std::make_tuple(x.sum(), x); };
  ScheduleGPipe pipeline(
      make_stages(stage),
      {.num_microbatches = 2,
       .output_merge_spec = ChunkSpec::sequence({ChunkSpec::sum(), ChunkSpec::split(0)})});
  const StepResult result = pipeline.eval({torch::tensor({1.0, 2.0, 4.0})});
  EXPECT_EQ(result.output.toTupleRef().elements()[0].toTensor().item<double>(), 7);
  EXPECT_EQ(result.output.toTupleRef().elements()[1].toTensor().size(0), 3);
}

TEST(Step, LeavesOutputsAwayOnRequest) {
  ScheduleGPipe pipeline(make_stages([](torch::Tensor x) { return x; }), {.num_microbatches = 1});
  EXPECT_TRUE(pipeline.eval({torch::ones({1})}, {.return_outputs = false}).output.isNone());
}

TEST(Step, TrainsOnATreeOfTargets) {
  const torch::Tensor weight = parameter(1);
  ScheduleGPipe pipeline(
      make_stages([weight](torch::Tensor x) { return x * weight; }),
      {.num_microbatches = 2,
       .loss = [](const c10::IValue& output, const c10::IValue& target, const KeywordArguments&) {
         const auto& parts = target.toTupleRef().elements();
         return (output.toTensor() * parts[0].toTensor() * parts[1].toTensor()).sum();
       }});
  pipeline.step(
      {torch::ones({2})},
      {.target = c10::IValue(std::make_tuple(torch::full({2}, 2.0), torch::full({2}, 3.0)))});
  EXPECT_EQ(weight.grad().item<double>(), 6);
}

TEST(Step, PassesGradientsOnToTheCallersTensors) {
  for (const char* name : {"1F1B", "ZB-H1"}) {
    const torch::Tensor leaf = torch::ones({4}, torch::requires_grad());
    const torch::Tensor base = torch::ones({4}, torch::requires_grad());
    const torch::Tensor computed = base * 2;  // not a leaf
    const torch::Tensor weight = parameter(3);
    PipelineSchedule pipeline(
        make_stages([weight](torch::Tensor x, torch::Tensor y) { return x * y * weight; },
                    [](torch::Tensor x) { return x * 5; }),
        make_schedule(name, {.num_ranks = 2, .num_microbatches = 2}),
        {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
    pipeline.step({leaf, computed}, {.target = torch::ones({4})});
    EXPECT_TRUE(torch::equal(leaf.grad(), torch::full({4}, 30.0))) << name;
    EXPECT_TRUE(torch::equal(base.grad(), torch::full({4}, 30.0))) << name;
    EXPECT_EQ(weight.grad().item<double>(), 40) << name;
  }
}

TEST(Step, AddsUpTheGradientOfAnInputThatEveryMicrobatchSees) {
  const torch::Tensor shared = parameter(2);
  const auto stage = [](const std::vector<c10::IValue>& inputs, const KeywordArguments& keywords) {
    return c10::IValue(inputs[0].toTensor() * keywords.at("shared").toTensor());
  };
  const auto module = make_stage_module(StageForward(stage), {.keywords = {"shared"}});
  Schedule1F1B pipeline(make_stages({module, module}),
                        {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
  pipeline.step({torch::ones({2})}, {.target = torch::ones({2}), .kwargs = {{"shared", shared}}});
  EXPECT_EQ(shared.grad().item<double>(), 8);  // of 2 * shared^2
}

TEST(Step, KeepsAMicrobatchFromDisturbingAnother) {
  // Both microbatches are views of one tensor, and the stage writes to its own in place.
  const torch::Tensor weight = parameter(2);
  ScheduleGPipe in_place(make_stages([weight](torch::Tensor x) {
                           x.mul_(2);
                           return x * weight;
                         }),
                         {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
  in_place.step({torch::tensor({1.0, 10.0})}, {.target = torch::ones({2})});
  EXPECT_EQ(weight.grad().item<double>(), 22);
}

}  // namespace
}  // namespace penstock
