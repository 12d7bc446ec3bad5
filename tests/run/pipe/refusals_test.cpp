// What cannot be captured or cut, and what is said about it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/pipe/pipe.h"
#include "tests/run/pipe/sources.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

TEST(Pipe, NamesTheNearestModules) {
  nn::Sequential model = three_layers();
  EXPECT_EQ(
      message_of([&] {
        pipeline(model, {torch::randn({2, 4})}, {.split_spec = {{"7", SplitPoint::Beginning}}});
      }),
      R"(the model has no module "7"; the nearest are "0", "1", "2")");
}

TEST(Pipe, SaysThatAModuleCannotBeSeen) {
  nn::Linear layer(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("layer", layer);
  owner->register_module("activation", nn::ReLU());
  const std::string message = message_of([&] {
    pipeline(
        source_of([&](const auto& inputs) { return layer(inputs[0].toTensor()).relu(); }, owner),
        {torch::randn({2, 4})}, {.split_spec = {{"activation", SplitPoint::Beginning}}});
  });
  EXPECT_THAT(message, HasSubstr(R"(the module "activation" does nothing that can be seen)"));
  EXPECT_THAT(message, HasSubstr("penstock::call"));
}

TEST(Pipe, RefusesASpecTogetherWithAPolicy) {
  nn::Sequential model = three_layers();
  EXPECT_EQ(message_of([&] {
              pipeline(model, {torch::randn({2, 4})},
                       {.split_spec = {{"2", SplitPoint::Beginning}},
                        .split_policy = split_by_parameters(2)});
            }),
            "both a split spec and a split policy say where to cut; give one of them");
}

TEST(Pipe, RefusesMoreStagesThanThereArePlaces) {
  nn::Sequential model(nn::Linear(2, 2));
  EXPECT_THAT(message_of([&] {
                pipeline(model, {torch::randn({2, 2})}, {.split_policy = split_by_parameters(9)});
              }),
              HasSubstr("the model cannot be cut into 9 stages"));
}

TEST(Pipe, HasNoStageBeyondTheLast) {
  const Pipe pipe = pipeline(three_layers(), {torch::randn({2, 4})});
  EXPECT_EQ(message_of([&] { pipe.build_stage(1); }),
            "there is no stage 1; the pipe has 1 stage, numbered from 0");
  EXPECT_EQ(message_of([&] { pipe.build_stage(-1); }),
            "there is no stage -1; the pipe has 1 stage, numbered from 0");
}

TEST(Pipe, HoldsForTheValueItWasCapturedFor) {
  const Pipe pipe = pipeline(
      source_of([](const auto& inputs) { return inputs[0].toTensor() * inputs[1].toInt(); }),
      {torch::ones({2}), 3});
  EXPECT_TRUE(torch::equal(pipe.forward({torch::ones({2}), 3}).toTensor(), torch::full({2}, 3.0)));
  EXPECT_EQ(message_of([&] {
              pipe.forward({torch::ones({2}), 5});
            }),
            "the model was captured for input1 = 3, but was given 5; capture it again for that");
}

TEST(Pipe, RefusesToChangeSharedMemoryFromAnotherStage) {
  const auto forward = [](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    torch::Tensor hidden = inputs[0].toTensor() + 1;
    const torch::Tensor view = hidden.view({-1});
    pipe_split();
    hidden.mul_(2);
    return view + hidden.view({-1});
  };
  const std::string message = message_of([&] {
    pipeline(source_of(forward), {torch::randn({2, 2})});
  });
  EXPECT_THAT(message, HasSubstr("aten::mul_ changes"));
  EXPECT_THAT(message, HasSubstr("shares memory with the result of aten::view"));
}

TEST(Pipe, RefusesAModelThatReadsValues) {
  nn::Linear layer(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("layer", layer);
  const auto forward = [&](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    const torch::Tensor hidden = call("layer", layer, inputs[0].toTensor());
    const ModuleScope scope("decision");
    return hidden.sum().item<double>() > 0 ? hidden : -hidden;
  };
  const std::string message = message_of([&] {
    pipeline(source_of(forward, owner), {torch::randn({2, 4})});
  });
  EXPECT_THAT(message, HasSubstr("reads the value of a tensor with aten::item in decision"));
  EXPECT_THAT(message, HasSubstr("make_stage_module()"));
  EXPECT_TRUE(forward({torch::randn({2, 4})}).isTensor());  // and the model still runs
}

TEST(Pipe, RefusesParametersThatNobodyRegistered) {
  const torch::Tensor weight = torch::randn({4}, torch::requires_grad());
  EXPECT_THAT(message_of([&] {
                pipeline(
                    source_of([&](const auto& inputs) { return inputs[0].toTensor() * weight; }),
                    {torch::randn({4})});
              }),
              HasSubstr("neither an input nor registered"));
}

TEST(Pipe, PassesOnWhatTheModelThrows) {
  EXPECT_THAT(message_of([&] {
                pipeline(source_of([](const auto& inputs) -> c10::IValue {
                           return inputs[0].toTensor().matmul(torch::ones({9, 9}));
                         }),
                         {torch::randn({2, 4})});
              }),
              HasSubstr("cannot capture the model: mat1 and mat2 shapes"));
  EXPECT_EQ(pipeline(three_layers(), {torch::randn({2, 4})}).num_stages(), 1);  // as before
}

}  // namespace
}  // namespace penstock
