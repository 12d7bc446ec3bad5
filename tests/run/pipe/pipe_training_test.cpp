#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/pipe/loss_wrapper.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/random/random_scope.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/whole_models.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
namespace functional = torch::nn::functional;

torch::Tensor squared_error(const torch::Tensor& output, const torch::Tensor& target) {
  return functional::mse_loss(output, target);
}

// One layer that is applied three times, with a cut before each of the last two; the first stage
// uses its weight twice.
class Repeated final : public nn::Module {
 public:
  Repeated() : layer_(register_module("layer", nn::Linear(6, 6))) {}
  torch::Tensor forward(torch::Tensor hidden) {
    hidden = torch::tanh(layer_(torch::tanh(layer_(hidden))));
    pipe_split();
    hidden = torch::tanh(layer_(hidden));
    pipe_split();
    return layer_(hidden);
  }

 private:
  nn::Linear layer_;
};

std::shared_ptr<Repeated> make_repeated() {
  torch::manual_seed(21);
  return std::make_shared<Repeated>();
}

class MultiUseRules : public ::testing::TestWithParam<MultiUse> {};

TEST_P(MultiUseRules, GiveTheGradientsOfTheUncutModel) {
  torch::manual_seed(22);
  const torch::Tensor inputs = torch::randn({8, 6});
  const torch::Tensor targets = torch::randn({8, 6});
  const auto whole = make_repeated();
  for (int step = 0; step < 2; ++step) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      const auto rows = [microbatch](const torch::Tensor& batch) {
        return batch.tensor_split(4)[static_cast<std::size_t>(microbatch)];
      };
      const torch::Tensor loss = squared_error(whole->forward(rows(inputs)), rows(targets));
      loss.backward(torch::full_like(loss, 1.0 / 4));
    }
  }
  for (const char* schedule : {"GPipe", "1F1B", "ZB-H1", "Interleaved1F1B"}) {
    SCOPED_TRACE(schedule);
    const auto model = make_repeated();
    const Pipe pipe =
        pipeline(model, {inputs.slice(0, 0, 2)}, {.graph = {.multi_use = GetParam()}});
    ASSERT_EQ(pipe.num_stages(), 3);
    ScheduleOptions options{.num_microbatches = 4, .loss = squared_error};
    if (std::string(schedule) == "Interleaved1F1B") options.num_ranks = 1;
    const auto pipeline = get_schedule_class(schedule)(pipe.build_stages(), options);
    for (int step = 0; step < 2; ++step) pipeline->step({inputs}, {.target = targets});
    expect_equal(gradients_of(model->parameters()), gradients_of(whole->parameters()), "gradients");
    EXPECT_EQ(pipeline->parameters().size(), 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(, MultiUseRules,
                         ::testing::Values(MultiUse::Replicate, MultiUse::Transmit),
                         [](const auto& instance) {
                           return instance.param == MultiUse::Replicate ? "Replicate" : "Transmit";
                         });

TEST(MultiUse, MayBeGivenByParameter) {
  const auto model = make_repeated();
  const Pipe pipe = pipeline(model, {torch::randn({2, 6})},
                             {.graph = {.multi_use_of = {{"layer.weight", MultiUse::Transmit}}}});
  EXPECT_THAT(pipe.info().shared_parameters, ::testing::ElementsAre("layer.bias"));
  EXPECT_EQ(message_of([&] {
              pipeline(model, {torch::randn({2, 6})},
                       {.graph = {.multi_use_of = {{"layer.wait", MultiUse::Transmit}}}});
            }),
            R"(the model has no parameter "layer.wait"; did you mean "layer.weight"?)");
}

TEST(LossWrapper, ComputesTheLossInsideOfThePipeline) {
  torch::manual_seed(31);
  nn::Sequential model(nn::Linear(4, 4), nn::Tanh(), nn::Linear(4, 1));
  const auto wrapped =
      std::make_shared<TrivialLossWrapper<nn::SequentialImpl>>(model.ptr(), squared_error);
  const torch::Tensor inputs = torch::randn({6, 4});
  const torch::Tensor targets = torch::randn({6, 1});
  const TraceSource source{.forward = [&](const std::vector<c10::IValue>& values,
                                          const KeywordArguments&) -> c10::IValue {
                             return wrapped->forward(values[0].toTensor(), values[1].toTensor());
                           },
                           .module = wrapped};
  const Pipe pipe = pipeline(source, {inputs.slice(0, 0, 2), targets.slice(0, 0, 2)},
                             {.split_policy = split_by_parameters(2)});
  Schedule1F1B schedule(pipe.build_stages(), {.num_microbatches = 3, .loss = loss_in_output(true)});
  const StepResult result = schedule.step({inputs, targets}, {.return_outputs = false});
  const std::vector<torch::Tensor> found = gradients_of(model->parameters());
  model->zero_grad();
  std::vector<torch::Tensor> losses;
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    const auto first = 2 * microbatch;
    const torch::Tensor loss = squared_error(model->forward(inputs.slice(0, first, first + 2)),
                                             targets.slice(0, first, first + 2));
    loss.backward(torch::full_like(loss, 1.0 / 3));
    losses.push_back(loss.detach());
  }
  expect_equal(result.losses, losses, "losses");
  expect_equal(found, gradients_of(model->parameters()), "gradients");
}

class Noisy final : public nn::Module {
 public:
  Noisy() : layers_(register_module("layers", nn::ModuleList())) {
    for (int layer = 0; layer < 4; ++layer) layers_->push_back(nn::Linear(5, 5));
  }
  torch::Tensor forward(torch::Tensor hidden) {
    for (int layer = 0; layer < 4; ++layer) {
      hidden = layers_[static_cast<std::size_t>(layer)]->as<nn::Linear>()->forward(hidden);
      hidden = torch::dropout(hidden, 0.3, is_training());
    }
    return hidden;
  }

 private:
  nn::ModuleList layers_;
};

TEST(Dropout, DependsNeitherOnTheCutNorOnTheSchedule) {
  torch::manual_seed(41);
  const auto model = std::make_shared<Noisy>();
  const torch::Tensor inputs = torch::randn({8, 5});
  const torch::Tensor targets = torch::randn({8, 5});
  constexpr std::uint64_t kSeed = 99;

  std::vector<torch::Tensor> losses;
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    const RandomScope scope({.step_seed = kSeed, .microbatch = microbatch}, RandomStream::PerDraw);
    const auto rows = static_cast<std::size_t>(microbatch);
    const torch::Tensor loss =
        squared_error(model->forward(inputs.tensor_split(4)[rows]), targets.tensor_split(4)[rows]);
    loss.backward(torch::full_like(loss, 1.0 / 4));
    losses.push_back(loss.detach());
  }
  const std::vector<torch::Tensor> gradients = gradients_of(model->parameters());
  ASSERT_FALSE(torch::equal(losses[0], squared_error(model->forward(inputs.tensor_split(4)[0]),
                                                     targets.tensor_split(4)[0])));

  for (const int num_stages : {1, 2, 4}) {
    const Pipe pipe =
        pipeline(model, {inputs.slice(0, 0, 2)}, {.split_policy = split_by_parameters(num_stages)});
    for (const char* schedule : {"GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
      if (num_stages == 1 && std::string(schedule) == "ZBVZeroBubble") continue;
      SCOPED_TRACE(::testing::Message() << schedule << " of " << num_stages << " stages");
      ScheduleOptions options{.num_microbatches = 4, .loss = squared_error};
      if (std::string(schedule) == "Interleaved1F1B") options.num_ranks = (num_stages + 1) / 2;
      const auto pipeline = get_schedule_class(schedule)(pipe.build_stages(), options);
      for (int repetition = 0; repetition < 5; ++repetition) {
        model->zero_grad();
        const StepResult result = pipeline->step({inputs}, {.target = targets, .seed = kSeed});
        expect_equal(result.losses, losses, "losses");
        expect_equal(gradients_of(model->parameters()), gradients, "gradients");
      }
    }
  }
}

TEST(PipedModel, EvaluatesInEvaluationMode) {
  const WholeModel whole = whole_conv_net();
  const auto module = whole.make();
  const auto inputs = whole.make_inputs(8);
  module->eval();
  const c10::IValue expected = module->forward(inputs);
  module->train();
  Pipe pipe = pipeline(trace_source(module), {inputs[0].toTensor().slice(0, 0, 2)},
                       {.split_policy = split_by_parameters(4)});
  pipe.train(false);
  ScheduleZBVZeroBubble schedule(pipe.build_stages(), {.num_microbatches = 4});
  const StepResult result = schedule.eval(inputs);
  EXPECT_TRUE(torch::allclose(result.output.toTensor(), expected.toTensor(), 1e-5, 1e-6));
  EXPECT_TRUE(torch::equal(module->named_buffers()["block0.norm.running_mean"], torch::zeros({3})));
}

}  // namespace
}  // namespace penstock
