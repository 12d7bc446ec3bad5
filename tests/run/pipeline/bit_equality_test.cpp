#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/prover/check.h"
#include "penstock/run/pipeline/schedules.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/models.h"
#include "tests/run/support/named_shapes.h"

// The contract that matters: training with a pipeline is training without one, to the bit.
namespace penstock {
namespace {

bool is_forward(ActionKind kind) {
  return kind == ActionKind::Forward;
}

// The order of a stage's actions that are `wanted`.
using Wanted = bool (*)(ActionKind kind);
std::vector<int> microbatch_order(const Schedule& program, int stage, Wanted wanted) {
  std::vector<int> order;
  for (const auto& actions : program.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.stage == stage && wanted(part.kind)) order.push_back(part.microbatch);
      });
    }
  }
  return order;
}

// The order in which the weight gradients of each stage are added up.
std::vector<int> microbatch_order(const Schedule& program) {
  const std::vector<int> order = microbatch_order(program, 0, makes_weight_gradient);
  for (int stage = 1; stage < extent_of(program).num_stages; ++stage) {
    EXPECT_EQ(microbatch_order(program, stage, makes_weight_gradient), order) << "stage " << stage;
  }
  return order;
}

void expect_bit_equal(const TestModel& model, const Schedule& schedule) {
  const CheckReport report = check(schedule);
  const int num_microbatches = report.num_microbatches;
  const Blocks blocks = model.make(report.num_stages);
  const Blocks baseline = model.make(report.num_stages);
  PipelineSchedule pipeline(make_stages(blocks), schedule,
                            {.num_microbatches = num_microbatches, .loss = model.loss});
  const std::vector<int> order = microbatch_order(pipeline.program());

  torch::optim::SGD optimizer(parameters_of(blocks), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::SGD baseline_optimizer(parameters_of(baseline),
                                       torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const int rows = 2 * num_microbatches + step % 2;  // uneven in every other step
    const torch::Tensor inputs = model.make_inputs(rows);
    const torch::Tensor targets = model.make_targets(rows);
    const StepResult result = pipeline.step({inputs}, {.target = targets});
    const TrainedStep expected = train_without_pipeline(model, baseline, inputs, targets, order);

    expect_equal({result.output.toTensor()}, {expected.output}, "output");
    expect_equal(result.losses, expected.losses, "loss of microbatch");
    expect_equal(gradients_of(parameters_of(blocks)), expected.gradients, "gradient");
    optimizer.step();
    baseline_optimizer.step();
    optimizer.zero_grad();
    baseline_optimizer.zero_grad();
  }
  expect_equal(parameters_of(blocks), parameters_of(baseline), "parameter");
  // Statistics depend on the order of forwards, which is that of the backwards in the baseline.
  for (int stage = 0; stage < report.num_stages; ++stage) {
    if (microbatch_order(pipeline.program(), stage, is_forward) != order) continue;
    const auto index = static_cast<std::size_t>(stage);
    expect_equal(blocks[index]->buffers(), baseline[index]->buffers(), "buffer");
  }
  EXPECT_EQ(pipeline.peak_activations(), check(pipeline.program()).peak_activations);
}

class EverySchedule : public ::testing::TestWithParam<NamedShape> {};

TEST_P(EverySchedule, TrainsLikeOneThread) {
  const Schedule order = make_schedule(GetParam());
  for (const TestModel& model : test_models()) {
    SCOPED_TRACE(model.name);
    expect_bit_equal(model, order);
  }
}

INSTANTIATE_TEST_SUITE_P(BitEquality, EverySchedule, ::testing::ValuesIn(training_shapes()),
                         [](const auto& instance) {
                           const NamedShape& shape = instance.param;
                           std::string name = shape.schedule;
                           std::erase_if(name,
                                         [](char letter) { return std::isalnum(letter) == 0; });
                           return name + "_p" + std::to_string(shape.num_ranks) + "_v" +
                                  std::to_string(shape.stages_per_rank) + "_m" +
                                  std::to_string(shape.num_microbatches);
                         });

// All schedules but these add gradients up in the order of the microbatches.
TEST(BitEquality, SchedulesKeepTheOrderOfMicrobatches) {
  for (const NamedShape& shape : training_shapes()) {
    if (shape.schedule == "LoopedBFS") continue;
    const Schedule order = make_schedule(shape);
    std::vector<int> ascending;
    for (int microbatch = 0; microbatch < shape.num_microbatches; ++microbatch) {
      ascending.push_back(microbatch);
    }
    EXPECT_EQ(microbatch_order(order), ascending) << ::testing::PrintToString(shape);
  }
}

TEST(BitEquality, HoldsForCustomSchedules) {
  for (const auto& [name, schedule] : custom_schedules()) {
    SCOPED_TRACE(name);
    for (const TestModel& model : test_models()) expect_bit_equal(model, schedule);
  }
}

}  // namespace
}  // namespace penstock
