#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"

// What goes wrong with torch.distributed.pipelining 2.14, and must not here. The numbers are those
// of the stages in README.md, unless they say that they are of the schedules.
namespace penstock {
namespace {

using ::testing::HasSubstr;

// The schedules of one rank per stage, with whole and with split backwards.
constexpr std::array<const char*, 3> kSchedules = {"GPipe", "1F1B", "ZB-H1"};

Schedule order_of(const char* name, int num_microbatches) {
  return make_schedule(name, {.num_ranks = 2, .num_microbatches = num_microbatches});
}

// B6, B7, B8; E3 of the schedules: shapes used to be learned by running the modules once more, on
// garbage.
TEST(Regressions, ModulesRunOncePerMicrobatchOnRealValuesOnly) {
  std::atomic<int> num_calls = 0;
  const torch::Tensor table = torch::arange(10.0).requires_grad_();
  const auto stages = make_stages(
      {make_stage_module([&](torch::Tensor tokens) {
         ++num_calls;
         tokens.add_(1);  // in place, on the caller's rows
         return tokens;
       }),
       // Indices that are not real would be out of range.
       make_stage_module([&](torch::Tensor tokens) { return table.index_select(0, tokens); })});
  Schedule1F1B pipeline(stages, {.num_microbatches = 2, .loss = sum_of_products});
  for (int round = 1; round <= 3; ++round) {
    const torch::Tensor tokens = torch::tensor({1, 2, 3, 4});
    const StepResult result = pipeline.step({tokens}, {.target = torch::ones({4})});
    EXPECT_TRUE(torch::equal(result.output.toTensor(), torch::tensor({2.0, 3.0, 4.0, 5.0})));
    EXPECT_TRUE(torch::equal(tokens, torch::tensor({2, 3, 4, 5}))) << "changed once, not twice";
    pipeline.eval({torch::tensor({1, 2, 3, 4})});
    EXPECT_EQ(num_calls, 4 * round);
  }
}

// B10: complex activations were taken for values without a gradient.
TEST(Regressions, ComplexActivationsCarryGradients) {
  for (const char* name : kSchedules) {
    const torch::Tensor weight = parameter(3);
    PipelineSchedule pipeline(
        make_stages({make_stage_module(
                         [weight](torch::Tensor x) { return torch::complex(x * weight, x * 2); }),
                     make_stage_module([](torch::Tensor z) { return torch::real(z * z); })}),
        order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products});
    pipeline.step({torch::ones({2})}, {.target = torch::ones({2})});
    EXPECT_EQ(weight.grad().item<double>(), 6) << name;  // of (weight^2 - 4) x^2
  }
}

// B11, B16: the loss got another structure than the stage returned, and dicts failed in training.
TEST(Regressions, TheLossGetsWhatTheLastStageReturned) {
  for (const char* name : kSchedules) {
    const torch::Tensor weight = parameter(3);
    PipelineSchedule pipeline(
        make_stages({make_stage_module([](torch::Tensor x) { return x; }),
                     make_stage_module([weight](torch::Tensor x) {
                       c10::impl::GenericDict output(c10::StringType::get(), c10::AnyType::get());
                       output.insert("logits", x * weight);
                       output.insert("scores", c10::IValue(std::make_tuple(x.detach())));
                       output.insert("name", "head");
                       return c10::IValue(output);
                     })}),
        order_of(name, 2),
        {.num_microbatches = 2,
         .loss = [](const c10::IValue& output, const c10::IValue& target, const KeywordArguments&) {
           const auto dict = output.toGenericDict();
           EXPECT_TRUE(dict.at("scores").isTuple());
           return (dict.at("logits").toTensor() * target.toTensor()).sum();
         }});
    const StepResult result =
        pipeline.step({torch::tensor({1.0, 2.0})}, {.target = torch::ones({2})});
    const auto dict = result.output.toGenericDict();
    EXPECT_TRUE(torch::equal(dict.at("logits").toTensor(), torch::tensor({3.0, 6.0}))) << name;
    EXPECT_FALSE(dict.at("logits").toTensor().requires_grad()) << name;
    EXPECT_EQ(dict.at("name").toStringRef(), "head") << name;
    EXPECT_EQ(weight.grad().item<double>(), 1.5) << name;
  }
}

// B12; A7 of the schedules: zeros in place of a missing gradient went to another channel than real
// gradients.
TEST(Regressions, AMissingGradientDoesNotHoldAnyoneUp) {
  for (const char* name : kSchedules) {
    const torch::Tensor weight = parameter(3);
    const torch::Tensor head = parameter(2);
    PipelineSchedule pipeline(
        make_stages({make_stage_module([weight](torch::Tensor x) { return x * weight; }),
                     make_stage_module([head](torch::Tensor x) { return x.detach() * head; })}),
        order_of(name, 3),
        {.num_microbatches = 3, .loss = sum_of_products, .deadline = std::chrono::seconds(60)});
    pipeline.step({torch::ones({3})}, {.target = torch::ones({3})});
    EXPECT_FALSE(weight.grad().defined()) << name;
    EXPECT_EQ(head.grad().item<double>(), 3) << name;
  }
}

// B21: a step that had no gradient to start from went through in silence and trained nothing.
TEST(Regressions, AStepThatTrainsNothingIsAnErrorUnlessAllowed) {
  for (const char* name : kSchedules) {
    const torch::Tensor weight = parameter(3);
    const auto train = [&](bool allows_detached_loss) {
      PipelineSchedule pipeline(
          make_stages({make_stage_module([weight](torch::Tensor x) { return x * weight; }),
                       make_stage_module([](torch::Tensor x) { return x.detach() * 2; })}),
          order_of(name, 2),
          {.num_microbatches = 2,
           .loss = sum_of_products,
           .allows_detached_loss = allows_detached_loss});
      return message_of([&] { pipeline.step({torch::ones({2})}, {.target = torch::ones({2})}); });
    };
    EXPECT_THAT(train(false), AllOf(::testing::StartsWith(
                                        "rank 1, step 1 (1F0): the loss of microbatch 0 on stage "
                                        "1 does not depend on anything that requires a gradient"),
                                    HasSubstr("set ScheduleOptions::allows_detached_loss")))
        << name;
    EXPECT_EQ(train(true), "nothing was thrown") << name;
    EXPECT_FALSE(weight.grad().defined()) << name;
  }
}

// A8 of the schedules: a program that never reduces gradients left them wrong without a word.
TEST(Regressions, AProgramMustReduceGradientsOnce) {
  const auto make = [](const std::string& csv) {
    return message_of([&] {
      PipelineSchedule(make_stages({make_stage_module([](torch::Tensor x) { return x; })}),
                       read_csv(csv, "program.csv"),
                       {.num_microbatches = 1, .loss = sum_of_products});
    });
  };
  EXPECT_EQ(make("0F0,0B0,0REDUCE_GRAD\n"), "nothing was thrown");
  EXPECT_THAT(make("0UNSHARD,0F0,0B0,0RESHARD\n"), HasSubstr("REDUCE_GRAD"));
  EXPECT_THAT(make("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"), HasSubstr("REDUCE_GRAD"));
}

// B13, B6 of the schedules: what a step has kept stayed alive after it.
TEST(Regressions, NothingOfAStepOutlivesIt) {
  for (const char* name : kSchedules) {
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> seen;
    std::mutex mutex;
    const auto watch = [&](const torch::Tensor& tensor) {
      const std::lock_guard lock(mutex);
      seen.emplace_back(tensor.getIntrusivePtr());
    };
    const torch::Tensor weight = parameter(3);
    PipelineSchedule pipeline(make_stages({make_stage_module([&](torch::Tensor x) {
                                             torch::Tensor y = x * weight;
                                             watch(y);
                                             return y;
                                           }),
                                           make_stage_module([&](torch::Tensor x) {
                                             watch(x);
                                             torch::Tensor y = (x * weight).exp();
                                             watch(y);
                                             return y;
                                           })}),
                              order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products});
    pipeline.step({torch::ones({2}, torch::requires_grad())},
                  {.target = torch::ones({2}), .return_outputs = false});
    pipeline.eval({torch::ones({2})}, {.return_outputs = false});
    EXPECT_EQ(seen.size(), 12U);
    for (const auto& tensor : seen) EXPECT_EQ(tensor.use_count(), 0U) << name;
  }
}

// B14: a second weight half of one microbatch was a bare key error, or went unnoticed.
TEST(Regressions, AStageSaysThatAMicrobatchIsFinished) {
  const torch::Tensor weight = parameter(3);
  PipelineStage stage(make_stage_module([weight](torch::Tensor x) { return x * weight; }),
                      {.index = 0, .num_stages = 2});
  stage.begin_step({.is_training = true, .num_microbatches = 1});
  Message message;
  Message gradients;
  EXPECT_THAT(message_of([&] { stage.backward(0, {torch::ones({1})}, gradients); }),
              HasSubstr("backward of microbatch 0 on stage 0: its forward has not run"));
  stage.keep_outputs(0, stage.forward(0, {torch::ones({1})}, {}), message);
  EXPECT_THAT(message_of([&] { stage.backward_weight(0); }), HasSubstr("backward_input"));
  stage.backward_input(0, {torch::ones({1})}, gradients);
  stage.backward_weight(0);
  EXPECT_THAT(message_of([&] { stage.backward_weight(0); }),
              HasSubstr("weight backward of microbatch 0 on stage 0"));
  EXPECT_THAT(message_of([&] { stage.backward_weight(-1); }), HasSubstr("microbatch -1"));
  EXPECT_EQ(weight.grad().item<double>(), 1);
}

// B15: outputs that are not contiguous could not be sent.
TEST(Regressions, TransposedOutputsTravel) {
  const torch::Tensor weight = torch::ones({2, 3}, torch::requires_grad());
  for (const char* name : kSchedules) {
    weight.mutable_grad().reset();
    PipelineSchedule pipeline(make_stages({make_stage_module([weight](torch::Tensor x) {
                                             return (x.unsqueeze(-1) * weight).transpose(1, 2);
                                           }),
                                           make_stage_module([](torch::Tensor x) {
                                             EXPECT_FALSE(x.is_contiguous());
                                             return x * 2;
                                           })}),
                              order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products});
    pipeline.step({torch::ones({4, 2})}, {.target = torch::ones({4, 3, 2})});
    EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2, 3}, 4.0))) << name;
  }
}

// B17: gradients of the caller's tensors were wiped.
TEST(Regressions, GradientsOfTheCallersTensorsAreAddedTo) {
  for (const char* name : kSchedules) {
    const torch::Tensor first = torch::ones({1}, torch::requires_grad());
    const torch::Tensor second = torch::ones({1}, torch::requires_grad());
    first.mutable_grad() = torch::full({1}, 100.0);
    PipelineSchedule pipeline(
        make_stages({make_stage_module([](torch::Tensor x) { return x * 2; }),
                     make_stage_module([](torch::Tensor x) { return x * 3; })}),
        order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
    const PresplitBatch batch{.inputs = {{.args = {first}}, {.args = {second}}},
                              .targets = {torch::ones({1}), torch::ones({1})}};
    pipeline.step(batch);
    EXPECT_EQ(first.grad().item<double>(), 106) << name;
    EXPECT_EQ(second.grad().item<double>(), 6) << name;
  }
}

// B20: the input was the same tensor in every step, so hooks on it piled up.
TEST(Regressions, HooksOnAnInputAreCalledOncePerMicrobatch) {
  for (const char* name : kSchedules) {
    std::atomic<int> num_calls = 0;
    const torch::Tensor weight = parameter(3);
    PipelineSchedule pipeline(
        make_stages({make_stage_module([weight](torch::Tensor x) { return x * weight; }),
                     make_stage_module([&](torch::Tensor x) {
                       x.register_hook([&](const torch::Tensor&) { ++num_calls; });
                       return x * 2;
                     })}),
        order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products});
    for (int round = 1; round <= 3; ++round) {
      pipeline.step({torch::ones({2})}, {.target = torch::ones({2})});
      EXPECT_EQ(num_calls, 2 * round) << name;
    }
  }
}

// B32, B45: one tensor given as two inputs was taken for one.
TEST(Regressions, OneTensorMayBeTwoInputs) {
  for (const char* name : kSchedules) {
    const torch::Tensor x = torch::ones({2}, torch::requires_grad());
    PipelineSchedule pipeline(
        make_stages(
            {make_stage_module([](torch::Tensor left, torch::Tensor right) {
               return std::make_tuple(left * 2 + right * 3, left);
             }),
             make_stage_module([](torch::Tensor sum, torch::Tensor left) { return sum * left; })}),
        order_of(name, 2), {.num_microbatches = 2, .loss = sum_of_products, .scale_grads = false});
    pipeline.step({x, x}, {.target = torch::ones({2})});
    EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 10.0))) << name;  // of 5 x^2
  }
}

}  // namespace
}  // namespace penstock
