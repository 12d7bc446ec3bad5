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
using ::testing::StartsWith;

std::string refusal_of(const ScheduleOptions& options) {
  return message_of(
      [&] { Schedule1F1B pipeline(make_stages([](torch::Tensor x) { return x; }), options); });
}

TEST(ScheduleOptions, RefuseRowsInASum) {
  EXPECT_EQ(
      refusal_of(
          {.loss = sum_of_products, .scale_grads = false, .loss_weights = LossWeights::ByRows}),
      "LossWeights::ByRows says what each microbatch counts in a mean, but scale_grads = "
      "false asks for a sum; leave one of them out");
}

TEST(ScheduleOptions, RefuseFewerMicrobatchesThanTheScheduleHas) {
  EXPECT_THAT(refusal_of({.split = {.allow_fewer = true}}),
              StartsWith("split.allow_fewer is of no use to a pipeline"));
}

TEST(ScheduleOptions, RefuseCustomFunctionsOfSendsAndReceives) {
  for (const ActionKind kind : {ActionKind::SendForward, ActionKind::SendBackward,
                                ActionKind::ReceiveForward, ActionKind::ReceiveBackward}) {
    ScheduleOptions options;
    options.custom_functions[kind] = [](ActionContext& context) { context.run(); };
    EXPECT_THAT(refusal_of(options),
                HasSubstr("there is a custom function for " + std::string(kind_text(kind)) +
                          ", which only the executor can run"));
  }
}

}  // namespace
}  // namespace penstock
