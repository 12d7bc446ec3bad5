#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/optimizer/optimizer_state.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::Tensor small_parameter() {
  torch::manual_seed(3);
  return torch::randn({2, 3}).requires_grad_();
}

void step_with_gradient(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                        int number) {
  parameter.mutable_grad() = torch::full_like(parameter, 0.5 + number).detach();
  optimizer.step();
}

std::vector<std::string> names_of(const std::vector<StateEntry>& entries) {
  std::vector<std::string> names(entries.size());
  std::transform(entries.begin(), entries.end(), names.begin(),
                 [](const StateEntry& entry) { return entry.name; });
  return names;
}

std::vector<StateEntry> copy_of(std::vector<StateEntry> entries) {
  for (StateEntry& entry : entries) {
    if (auto* tensor = std::get_if<torch::Tensor>(&entry.value)) *tensor = tensor->clone();
  }
  return entries;
}

struct OptimizerCase {
  std::string name;
  OptimizerOptions options;
  std::vector<std::string> entries;  // after a step
};

std::vector<OptimizerCase> optimizer_cases() {
  return {{"SGD", {}, {}},
          {"SGD", {.momentum = 0.9}, {"momentum_buffer"}},
          {"Adam", {}, {"step", "exp_avg", "exp_avg_sq"}},
          {"AdamW", {.weight_decay = 0.1}, {"step", "exp_avg", "exp_avg_sq"}},
          {"RMSprop", {}, {"step", "square_avg"}},
          {"RMSprop", {.momentum = 0.5}, {"step", "square_avg", "momentum_buffer"}},
          {"Adagrad", {}, {"step", "sum"}}};
}

TEST(OptimizerState, HasTheNamesOfPyTorch) {
  for (const OptimizerCase& shape : optimizer_cases()) {
    SCOPED_TRACE(shape.name);
    const torch::Tensor parameter = small_parameter();
    const auto optimizer = make_optimizer(shape.name, {parameter}, shape.options);
    EXPECT_EQ(optimizer_name(*optimizer), shape.name);
    EXPECT_EQ(state_of(*optimizer, parameter).empty(), shape.name != "Adagrad");
    step_with_gradient(*optimizer, parameter, 0);
    EXPECT_EQ(names_of(state_of(*optimizer, parameter)), shape.entries);
  }
}

TEST(OptimizerState, HoldsTheTensorsOfTheOptimizer) {
  const torch::Tensor parameter = small_parameter();
  torch::optim::Adam optimizer({parameter}, torch::optim::AdamOptions(0.1).amsgrad(true));
  step_with_gradient(optimizer, parameter, 0);
  const std::vector<StateEntry> entries = state_of(optimizer, parameter);
  EXPECT_THAT(names_of(entries), ElementsAre("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
  EXPECT_EQ(std::get<std::int64_t>(entries[0].value), 1);
  const torch::Tensor before = std::get<torch::Tensor>(entries[1].value).clone();
  step_with_gradient(optimizer, parameter, 1);
  EXPECT_FALSE(torch::equal(std::get<torch::Tensor>(entries[1].value), before));
}

// An optimizer that is given the state of another goes on as that one does.
TEST(OptimizerState, CanBeTakenFromOneOptimizerToAnother) {
  for (const OptimizerCase& shape : optimizer_cases()) {
    SCOPED_TRACE(shape.name);
    const torch::Tensor parameter = small_parameter();
    const auto optimizer = make_optimizer(shape.name, {parameter}, shape.options);
    for (int number = 0; number < 3; ++number) step_with_gradient(*optimizer, parameter, number);

    const torch::Tensor other = parameter.detach().clone().requires_grad_();
    const auto heir = make_optimizer(shape.name, {other}, shape.options);
    set_state(*heir, other, copy_of(state_of(*optimizer, parameter)));
    for (int number = 3; number < 5; ++number) {
      step_with_gradient(*optimizer, parameter, number);
      step_with_gradient(*heir, other, number);
    }
    expect_equal({other}, {parameter}, "parameter");
  }
}

TEST(OptimizerState, CanBeForgotten) {
  const torch::Tensor parameter = small_parameter();
  const auto optimizer = make_optimizer("adamw", {parameter}, {});
  step_with_gradient(*optimizer, parameter, 0);
  set_state(*optimizer, parameter, {});
  EXPECT_TRUE(state_of(*optimizer, parameter).empty());
  step_with_gradient(*optimizer, parameter, 0);
  EXPECT_EQ(std::get<std::int64_t>(state_of(*optimizer, parameter)[0].value), 1);
}

TEST(OptimizerState, TakesACountThatIsATensor) {
  const torch::Tensor parameter = small_parameter();
  const auto optimizer = make_optimizer("adam", {parameter}, {});
  set_state(*optimizer, parameter,
            {{"step", torch::tensor(7.0)},
             {"exp_avg", torch::zeros({2, 3})},
             {"exp_avg_sq", torch::zeros({2, 3})}});
  EXPECT_EQ(std::get<std::int64_t>(state_of(*optimizer, parameter)[0].value), 7);
}

TEST(OptimizerState, SaysWhichEntryDoesNotFit) {
  const torch::Tensor parameter = small_parameter();
  const auto optimizer = make_optimizer("adam", {parameter}, {});
  const torch::Tensor zeros = torch::zeros({2, 3});
  const auto problem = [&](const std::vector<StateEntry>& entries) {
    return message_of([&] { set_state(*optimizer, parameter, entries); });
  };
  EXPECT_EQ(problem({{"exp_avg", zeros}, {"exp_avg_sq", zeros}}),
            "entry \"step\" of the state of Adam is missing");
  EXPECT_EQ(problem({{"step", std::int64_t{1}},
                     {"exp_avg", zeros},
                     {"exp_avg_sq", zeros},
                     {"exp_avg_cube", zeros}}),
            "the state of Adam has no entry \"exp_avg_cube\"; it has step, exp_avg, exp_avg_sq, "
            "max_exp_avg_sq");
  EXPECT_EQ(problem({{"step", std::int64_t{1}}, {"step", std::int64_t{2}}}),
            "entry \"step\" of the state of Adam is there twice");
  EXPECT_EQ(problem({{"step", zeros}}),
            "entry \"step\" of the state of Adam must be a count: an integer, or a tensor with one "
            "element");
  EXPECT_EQ(problem({{"step", std::int64_t{1}}, {"exp_avg", std::int64_t{1}}}),
            "entry \"exp_avg\" of the state of Adam must be a tensor");
  EXPECT_EQ(problem({{"step", std::int64_t{1}}, {"exp_avg", torch::zeros({3, 2})}}),
            "entry \"exp_avg\" of the state of Adam has the sizes [3, 2], but the parameter has "
            "[2, 3]");
  const auto adagrad = make_optimizer("adagrad", {parameter}, {});
  EXPECT_EQ(message_of([&] { set_state(*adagrad, parameter, {}); }),
            "entry \"step\" of the state of Adagrad is missing");
  EXPECT_EQ(message_of([&] { set_state(*optimizer, torch::zeros({4}), {}); }),
            "the Adam optimizer does not train this parameter of sizes [4], so it keeps no state "
            "of it");
}

TEST(OptimizerState, OfAnUnknownOptimizerIsAnError) {
  const torch::Tensor parameter = small_parameter();
  const torch::optim::LBFGS optimizer({parameter});
  const std::string expected =
      "the state of an optimizer torch::optim::LBFGS is not known; known are SGD, Adam, AdamW, "
      "RMSprop, Adagrad";
  EXPECT_EQ(message_of([&] { optimizer_name(optimizer); }), expected);
  EXPECT_EQ(message_of([&] { state_of(optimizer, parameter); }), expected);
}

TEST(MakeOptimizer, SetsTheOptions) {
  const torch::Tensor parameter = small_parameter();
  const auto optimizer = make_optimizer("AdamW", {parameter},
                                        {.learning_rate = 0.25,
                                         .weight_decay = 0.5,
                                         .first_beta = 0.75,
                                         .second_beta = 0.875,
                                         .epsilon = 0.125});
  const auto& options = static_cast<const torch::optim::AdamWOptions&>(optimizer->defaults());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.weight_decay(), 0.5);
  EXPECT_EQ(options.betas(), std::make_tuple(0.75, 0.875));
  EXPECT_EQ(options.eps(), 0.125);
}

TEST(MakeOptimizer, LeavesOtherOptionsAsLibtorchHasThem) {
  const auto optimizer = make_optimizer("adamw", {small_parameter()}, {.first_beta = 0.5});
  const auto& options = static_cast<const torch::optim::AdamWOptions&>(optimizer->defaults());
  EXPECT_EQ(options.weight_decay(), 1e-2);
  EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.999));
}

TEST(MakeOptimizer, SaysWhatIsWrong) {
  const auto problem = [](std::string_view name, const OptimizerOptions& options) {
    return message_of([&] { make_optimizer(name, {small_parameter()}, options); });
  };
  EXPECT_EQ(problem("adamv", {}), "unknown optimizer \"adamv\"; did you mean \"Adam\"?");
  EXPECT_EQ(problem("shampoo", {}),
            "unknown optimizer \"shampoo\"; known are SGD, Adam, AdamW, RMSprop, Adagrad");
  EXPECT_EQ(problem("adam", {.momentum = 0.9}),
            "Adam has no option \"momentum\"; SGD and RMSprop have one");
  EXPECT_EQ(problem("sgd", {.second_beta = 0.9}),
            "SGD has no option \"second beta\"; Adam and AdamW have one");
  EXPECT_EQ(problem("sgd", {.epsilon = 0.9}), "SGD has no option \"epsilon\"; all others have one");
  EXPECT_THAT(problem("sgd", {.learning_rate = -1}),
              HasSubstr("SGD cannot be made with these options: Invalid learning rate: -1"));
}

TEST(LearningRate, RisesAndDecays) {
  LearningRateSchedule schedule{.peak = 8, .minimum = 2, .num_warm_up_steps = 4, .num_steps = 12};
  const auto rates = [&](const std::vector<std::int64_t>& steps) {
    std::vector<double> found(steps.size());
    std::transform(steps.begin(), steps.end(), found.begin(),
                   [&](std::int64_t step) { return learning_rate(schedule, step); });
    return found;
  };
  EXPECT_THAT(rates({0, 1, 2, 3, 4, 100}), ElementsAre(2, 4, 6, 8, 8, 8));
  schedule.decay = Decay::Linear;
  EXPECT_THAT(rates({0, 3, 4, 6, 8, 11, 12, 100}), ElementsAre(2, 8, 8, 6.5, 5, 2.75, 2, 2));
  schedule.decay = Decay::Cosine;
  EXPECT_THAT(rates({3, 4, 12, 100}), ElementsAre(8, 8, 2, 2));
  EXPECT_NEAR(learning_rate(schedule, 8), 5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 6), 5 + 3 * std::sqrt(0.5), 1e-12);
}

TEST(LearningRate, IsSetOnAllGroups) {
  const std::vector<torch::optim::OptimizerParamGroup> groups = {
      torch::optim::OptimizerParamGroup({small_parameter()}),
      torch::optim::OptimizerParamGroup({small_parameter()},
                                        std::make_unique<torch::optim::SGDOptions>(3.0))};
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(1.0));
  set_learning_rate(optimizer, 0.125);
  for (const auto& group : optimizer.param_groups()) {
    EXPECT_EQ(group.options().get_lr(), 0.125);
  }
}

TEST(LearningRate, RefusesWhatContradictsItself) {
  const auto problem = [](const LearningRateSchedule& schedule, std::int64_t step = 0) {
    return message_of([&] { learning_rate(schedule, step); });
  };
  EXPECT_EQ(problem({.peak = -1}), "the learning rate must be a number of at least 0, not -1");
  EXPECT_EQ(problem({.peak = 1, .minimum = 2}),
            "the learning rate cannot decay to 2; the minimum is between 0 and the peak, which is "
            "1");
  EXPECT_EQ(problem({}, -1),
            "steps are counted from 0, but there are 0 of warm-up, and step -1 is asked for");
  EXPECT_EQ(problem({.decay = Decay::Cosine, .num_warm_up_steps = 5, .num_steps = 5}),
            "a cosine decay needs steps after the warm-up, but of 5 steps 5 are warm-up; set "
            "num_steps to those of the whole training");
}

TEST(LearningRate, KnowsDecaysByName) {
  for (const std::string_view name : decay_names()) EXPECT_EQ(decay_name(parse_decay(name)), name);
  EXPECT_EQ(parse_decay("Cosine"), Decay::Cosine);
  EXPECT_EQ(message_of([] { parse_decay("cosinus"); }),
            "unknown decay \"cosinus\"; did you mean \"cosine\"?");
}

}  // namespace
}  // namespace penstock
