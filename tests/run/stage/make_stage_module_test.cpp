#include "penstock/run/stage/make_stage_module.h"

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TwoInputs final : public torch::nn::Module {
 public:
  TwoInputs() : weight_(register_parameter("weight", torch::ones({2}))) {
    register_buffer("count", torch::zeros({}));
  }
  torch::Tensor forward(const torch::Tensor& left, std::int64_t factor) {
    return left * weight_ * factor;
  }

 private:
  torch::Tensor weight_;
};

TEST(MakeStageModule, TakesAModuleWithTypedInputs) {
  const auto module = make_stage_module(std::make_shared<TwoInputs>());
  const c10::IValue output = module->forward({torch::ones({2}), 3}, {});
  EXPECT_TRUE(torch::equal(output.toTensor(), torch::full({2}, 3.0)));
  ASSERT_EQ(module->named_parameters().size(), 1U);
  EXPECT_EQ(module->named_parameters()[0].first, "weight");
  EXPECT_EQ(module->named_buffers()[0].first, "count");
  EXPECT_EQ(message_of([&] { module->forward({torch::ones({2})}, {}); }),
            "the stage's forward takes 2 inputs, but was given 1");
  EXPECT_THAT(message_of([&] {
                module->forward({torch::ones({2}), 3}, {{"mask", 1}});
              }),
              HasSubstr("takes no keyword inputs, but was given \"mask\""));
}

TEST(MakeStageModule, TakesHoldersAndSequentials) {
  torch::nn::Linear linear(3, 2);
  EXPECT_EQ(make_stage_module(linear)->forward({torch::ones({4, 3})}, {}).toTensor().size(1), 2);
  torch::nn::Sequential sequential(torch::nn::Linear(3, 5), torch::nn::ReLU(),
                                   torch::nn::Linear(5, 2));
  const auto module = make_stage_module(sequential);
  EXPECT_EQ(module->forward({torch::ones({4, 3})}, {}).toTensor().size(1), 2);
  EXPECT_EQ(module->named_parameters().front().first, "0.weight");
}

TEST(MakeStageModule, TakesACallableWithTheModuleThatOwnsItsParameters) {
  torch::nn::Linear linear(3, 2);
  const auto module = make_stage_module(
      [linear](torch::Tensor x) mutable -> torch::Tensor { return linear->forward(x).relu(); },
      {.module = linear.ptr()});
  EXPECT_EQ(module->named_parameters().size(), 2U);
  EXPECT_GE(module->forward({torch::randn({4, 3})}, {}).toTensor().min().item<double>(), 0);
}

torch::Tensor scaled(const torch::Tensor& input, double factor) {
  return input * factor;
}

TEST(MakeStageModule, TakesAFunction) {
  const auto module = make_stage_module(scaled);
  EXPECT_EQ(module->forward({torch::ones({1}), 3.0}, {}).toTensor().item<double>(), 3);
  EXPECT_EQ(message_of([&] { module->forward({torch::ones({1})}, {}); }),
            "the stage's forward takes 2 inputs, but was given 1");
  EXPECT_EQ(
      make_stage_module(&torch::relu)->forward({-torch::ones({1})}, {}).toTensor().item<double>(),
      0);
}

c10::IValue first_of(const std::vector<c10::IValue>& inputs, const KeywordArguments& keywords) {
  return keywords.empty() ? inputs.front() : c10::IValue();
}

TEST(MakeStageModule, TakesAFunctionInTheGeneralForm) {
  EXPECT_EQ(make_stage_module(first_of, {.keywords = {"mask"}})->forward({7, 8}, {}).toInt(), 7);
}

TEST(MakeStageModule, TakesAnAnyModule) {
  torch::nn::AnyModule any(torch::nn::Linear(3, 2));
  const auto module = make_stage_module(any);
  EXPECT_EQ(module->forward({torch::ones({4, 3})}, {}).toTensor().size(1), 2);
  ASSERT_EQ(module->named_parameters().size(), 2U);
  EXPECT_TRUE(
      module->named_parameters()[0].second.is_same(any.get<torch::nn::LinearImpl>().weight));
  EXPECT_THAT(message_of([] { make_stage_module(torch::nn::AnyModule()); }),
              HasSubstr("there is no module"));
}

TEST(MakeStageModule, TakesACallableWithoutTypesForOneTensor) {
  const auto module = make_stage_module([](const auto& input) { return input * 2; });
  EXPECT_EQ(module->forward({torch::ones({1})}, {}).toTensor().item<double>(), 2);
}

TEST(MakeStages, NumbersModulesFromTheFirstToTheLast) {
  const auto expect_numbered = [](const StageList& stages) {
    ASSERT_EQ(stages.size(), 2U);
    for (int index = 0; index < 2; ++index) {
      EXPECT_EQ(stages[static_cast<std::size_t>(index)]->index(), index);
      EXPECT_EQ(stages[static_cast<std::size_t>(index)]->num_stages(), 2);
    }
    EXPECT_EQ(stages[0]->parameters().size(), 2U);
    EXPECT_EQ(stages[1]->parameters().size(), 0U);
  };
  const torch::nn::Linear linear(3, 2);
  expect_numbered(make_stages(linear, scaled));
  expect_numbered(make_stages({make_stage_module(linear), make_stage_module(scaled)}));
  EXPECT_EQ(message_of([] { make_stages({std::shared_ptr<StageModule>()}); }),
            "a stage needs a module");
}

torch::jit::Module scripted() {
  torch::jit::Module module("Scripted");
  module.register_parameter("weight", torch::full({2}, 3.0), false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(R"(
def forward(self, x: Tensor, scale: float = 1.0, mask: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    y = torch.relu(x * self.weight) * scale
    if mask is not None:
        y = y * mask
    if self.training:
        y = y + 1.0
    return y, y.sum()
)");
  return module;
}

TEST(MakeStageModule, TakesTorchScriptWithKeywordsAndControlFlow) {
  const auto module = make_stage_module(scripted());
  EXPECT_THAT(module->keywords(), ElementsAre("x", "scale", "mask"));
  const c10::IValue output =
      module->forward({torch::ones({2})}, {{"scale", 2.0}, {"mask", torch::tensor({1.0, 0.0})}});
  EXPECT_TRUE(
      torch::equal(output.toTupleRef().elements()[0].toTensor(), torch::tensor({7.0, 1.0})));
  module->train(false);
  EXPECT_TRUE(
      torch::equal(module->forward({torch::ones({2})}, {}).toTupleRef().elements()[0].toTensor(),
                   torch::full({2}, 3.0)));
  EXPECT_THAT(message_of([&] { module->forward({}, {}); }), HasSubstr("x"));
}

TEST(MakeStageModule, KeepsTheOperatorsOfTorchScriptApartForSplitBackwards) {
  // Run often enough for an optimising executor to have fused everything into one node.
  const auto make_module = [] {
    torch::jit::Module module("Linear");
    module.register_parameter("weight", torch::randn({4, 4}, torch::requires_grad()), false);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return torch.tanh(torch.mm(x, self.weight))\n");
    return module;
  };
  torch::jit::Module module = make_module();
  torch::jit::Module twin = make_module();
  PipelineSchedule pipeline(
      make_stages(module, twin), make_schedule("ZB-H1", {.num_ranks = 2, .num_microbatches = 4}),
      {.num_microbatches = 4, .loss = [](const torch::Tensor& output, const torch::Tensor& target) {
         return (output * target).sum();
       }});
  const torch::Tensor inputs = torch::randn({8, 4});
  const torch::Tensor targets = torch::randn({8, 4});
  for (int step = 0; step < 5; ++step) pipeline.step({inputs}, {.target = targets});

  torch::Tensor first = module.attr("weight").toTensor().detach().clone().requires_grad_();
  torch::Tensor second = twin.attr("weight").toTensor().detach().clone().requires_grad_();
  for (int step = 0; step < 5; ++step) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      const torch::Tensor hidden =
          inputs.slice(0, 2 * microbatch, 2 * microbatch + 2).mm(first).tanh().mm(second).tanh();
      const torch::Tensor loss =
          (hidden * targets.slice(0, 2 * microbatch, 2 * microbatch + 2)).sum();
      loss.backward(torch::full_like(loss, 0.25));
    }
  }
  EXPECT_TRUE(torch::equal(module.attr("weight").toTensor().grad(), first.grad()));
  EXPECT_TRUE(torch::equal(twin.attr("weight").toTensor().grad(), second.grad()));
}

}  // namespace
}  // namespace penstock
