#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/message_of.h"

// Losses that need no target: made from the output alone, or by the model itself.
namespace penstock {
namespace {

using ::testing::HasSubstr;

using Values = std::vector<c10::IValue>;

// One stage that scales its input by a parameter and returns what `wrap` makes of it.
StageList scaling_stage(const torch::Tensor& scale,
                        std::function<c10::IValue(const torch::Tensor&)> wrap) {
  return make_stages([scale, wrap = std::move(wrap)](const Values& inputs,
                                                     const KeywordArguments&) -> c10::IValue {
    return wrap(inputs[0].toTensor() * scale);
  });
}

c10::IValue loss_dict(const torch::Tensor& output) {
  c10::Dict<std::string, torch::Tensor> dict;
  dict.insert("logits", output);
  dict.insert("loss", output.mean());
  return dict;
}

c10::IValue dict_spec(const std::string& key) {
  c10::Dict<std::string, bool> spec;
  spec.insert(key, true);
  return spec;
}

void expect_trains(const LossFunction& loss,
                   std::function<c10::IValue(const torch::Tensor&)> wrap) {
  const torch::Tensor scale = torch::ones({1}, torch::requires_grad());
  ScheduleGPipe pipeline(scaling_stage(scale, std::move(wrap)),
                         {.num_microbatches = 2, .loss = loss});
  const torch::Tensor inputs = torch::tensor({1.0F, 2.0F, 3.0F, 6.0F});
  const StepResult result = pipeline.step({inputs}, {.return_outputs = false});
  ASSERT_EQ(result.losses.size(), 2);
  EXPECT_EQ(result.losses[0].item<float>(), 1.5);
  EXPECT_EQ(result.losses[1].item<float>(), 4.5);
  ASSERT_TRUE(scale.grad().defined()) << "a loss that the model computes is trained";
  EXPECT_EQ(scale.grad().item<float>(), 3);
  const StepResult evaluated = pipeline.eval({inputs}, {.return_outputs = false});
  ASSERT_EQ(evaluated.losses.size(), 2);
  EXPECT_EQ(evaluated.losses[1].item<float>(), 4.5);
}

TEST(LossInOutput, IsTheEntryLossOfADictByDefault) {
  expect_trains(loss_in_output(), loss_dict);
}

TEST(LossInOutput, IsTheWholeOutput) {
  expect_trains(loss_in_output(true), [](const auto& output) { return output.mean(); });
}

TEST(LossInOutput, IsReturnedOncePerMicrobatch) {
  const torch::Tensor scale = torch::ones({1}, torch::requires_grad());
  const torch::Tensor inputs = torch::tensor({1.0F, 2.0F, 3.0F, 6.0F});
  ScheduleGPipe whole(scaling_stage(scale, [](const auto& output) { return output.mean(); }),
                      {.num_microbatches = 2, .loss = loss_in_output(true)});
  const torch::Tensor expected = torch::tensor({1.5F, 4.5F});
  EXPECT_TRUE(torch::equal(whole.step({inputs}).output.toTensor(), expected));
  ScheduleGPipe dict(scaling_stage(scale, loss_dict),
                     {.num_microbatches = 2, .loss = loss_in_output()});
  const auto entries = dict.step({inputs}).output.toGenericDict();
  EXPECT_TRUE(torch::equal(entries.at("loss").toTensor(), expected));
  EXPECT_TRUE(torch::equal(entries.at("logits").toTensor(), inputs));
}

TEST(StepResult, SaysThatTheStepIsCompleteIfOutputsCannotBeMerged) {
  const torch::Tensor scale = torch::ones({1}, torch::requires_grad());
  ScheduleGPipe pipeline(
      scaling_stage(scale,
                    [](const auto& output) {
                      return std::make_tuple(output.mean(), output.mean().template item<double>());
                    }),
      {.num_microbatches = 2, .loss = loss_in_output(std::make_tuple(true, false))});
  EXPECT_EQ(message_of([&] {
              pipeline.step({torch::tensor({1.0F, 2.0F})});
            }),
            "the step is complete, but its outputs cannot be merged: output[1]: microbatch 1 "
            "returned 2.0, microbatch 0 returned 1.0; they differ and cannot be concatenated; give "
            "an output spec with a reducer, such as ChunkSpec::sum(); say how in "
            "ScheduleOptions::output_merge_spec, or set StepOptions::return_outputs to false");
  EXPECT_TRUE(scale.grad().defined());
}

TEST(LossInOutput, IsAnEntryOfATuple) {
  expect_trains(loss_in_output(std::make_tuple(false, true)),
                [](const auto& output) { return std::make_tuple(output, output.mean()); });
}

TEST(LossInOutput, IsAnEntryOfAList) {
  expect_trains(loss_in_output(c10::List<bool>({true, false})), [](const auto& output) {
    return std::vector<torch::Tensor>{output.mean(), output};
  });
}

TEST(LossInOutput, IsAnEntryOfADictInsideOfATuple) {
  expect_trains(loss_in_output(c10::ivalue::Tuple::create({false, dict_spec("loss")})),
                [](const auto& output) {
                  return c10::ivalue::Tuple::create({output, loss_dict(output)});
                });
}

TEST(LossFunction, MayBeMadeFromTheOutputAlone) {
  expect_trains([](const torch::Tensor& output) { return output.mean(); },
                [](const auto& output) { return output; });
  expect_trains(
      [](const c10::IValue& output, const KeywordArguments&) { return output.toTensor().mean(); },
      [](const auto& output) { return output; });
}

TEST(LossFunction, KnowsWhetherItNeedsATarget) {
  EXPECT_TRUE(LossFunction([](const torch::Tensor& a, const torch::Tensor& b) {
                return torch::mse_loss(a, b);
              }).needs_target());
  EXPECT_FALSE(LossFunction([](const torch::Tensor& a) { return a.sum(); }).needs_target());
  EXPECT_FALSE(loss_in_output().needs_target());
}

std::string failure_of(const LossFunction& loss,
                       std::function<c10::IValue(const torch::Tensor&)> wrap) {
  ScheduleGPipe pipeline(scaling_stage(torch::ones({1}, torch::requires_grad()), std::move(wrap)),
                         {.num_microbatches = 1, .loss = loss});
  return message_of([&] { pipeline.step({torch::ones({2})}); });
}

TEST(LossInOutput, ShowsAnOutputThatDoesNotFit) {
  EXPECT_EQ(failure_of(loss_in_output(), [](const auto& output) { return output; }),
            "rank 0, step 0 (0F0): the model returned float tensor [2] requires grad, in which the "
            "spec {\"loss\": true} finds no loss: it is no dict there");
  EXPECT_THAT(
      failure_of(loss_in_output(dict_spec("cost")), loss_dict),
      HasSubstr("in which the spec {\"cost\": true} finds no loss: it has no entry \"cost\""));
  EXPECT_THAT(
      failure_of(loss_in_output(std::make_tuple(true, false)),
                 [](const auto& output) { return std::make_tuple(output.mean(), output, output); }),
      HasSubstr("it has 3 entries where the spec has 2"));
  EXPECT_THAT(failure_of(loss_in_output(true), [](const auto&) { return 3; }),
              HasSubstr("the model returned 3, in which the spec true finds no loss: it has no "
                        "tensor there"));
  EXPECT_THAT(failure_of(loss_in_output(true), [](const auto& output) { return output; }),
              HasSubstr("expected a tensor with one element"));
}

TEST(LossInOutput, RefusesASpecWithoutALoss) {
  EXPECT_EQ(message_of([] { loss_in_output(false); }),
            "the loss spec false names 0 losses; set one entry to true");
  EXPECT_EQ(message_of([] { loss_in_output(std::make_tuple(true, true)); }),
            "the loss spec (true, true) names 2 losses; set one entry to true");
  EXPECT_EQ(message_of([] { loss_in_output("loss"); }),
            "the loss spec \"loss\" has an entry that is neither true nor false");
}

TEST(LossFunction, RefusesATargetThatItDoesNotTake) {
  ScheduleGPipe pipeline(scaling_stage(torch::ones({1}, torch::requires_grad()), loss_dict),
                         {.num_microbatches = 1, .loss = loss_in_output()});
  const std::string expected =
      "a target was given, but the loss takes the output alone; leave it out, or give it to the "
      "model as an input";
  const StepOptions options{.target = torch::ones({2})};
  EXPECT_EQ(message_of([&] { pipeline.step({torch::ones({2})}, options); }), expected);
  EXPECT_EQ(message_of([&] { pipeline.eval({torch::ones({2})}, options); }), expected);
}

TEST(LossFunction, ByRowsNeedsATarget) {
  ScheduleGPipe pipeline(
      scaling_stage(torch::ones({1}, torch::requires_grad()), loss_dict),
      {.num_microbatches = 1, .loss = loss_in_output(), .loss_weights = LossWeights::ByRows});
  EXPECT_EQ(message_of([&] { pipeline.step({torch::ones({2})}); }),
            "LossWeights::ByRows needs a target, whose rows it counts");
}

}  // namespace
}  // namespace penstock
