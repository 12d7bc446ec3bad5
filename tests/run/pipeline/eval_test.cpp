#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

TEST(Eval, RunsEveryScheduleBeforeTheFirstStepAndLeavesGradientsAlone) {
  const TestModel model = mlp_model();
  for (const ScheduleFamily& family : schedule_families()) {
    SCOPED_TRACE(family.name);
    const int num_ranks = 2;
    const Schedule order =
        make_schedule(family.name, {.num_ranks = num_ranks, .num_microbatches = 4});
    const Blocks blocks = model.make(extent_of(order).num_stages);
    PipelineSchedule pipeline(make_stages(blocks), order,
                              {.num_microbatches = 4, .loss = model.loss});
    const torch::Tensor inputs = model.make_inputs(9);
    torch::Tensor expected = inputs;
    for (const auto& block : blocks) expected = block->forward(expected);

    const StepResult first = pipeline.eval({inputs});
    EXPECT_TRUE(torch::allclose(first.output.toTensor(), expected));
    EXPECT_FALSE(first.output.toTensor().requires_grad());
    EXPECT_TRUE(first.losses.empty());
    for (const auto& gradient : gradients_of(parameters_of(blocks))) {
      EXPECT_FALSE(gradient.defined());
    }
    if (family.name == "ForwardOnly") continue;
    const torch::Tensor targets = model.make_targets(9);
    pipeline.step({inputs}, {.target = targets});
    const std::vector<torch::Tensor> gradients = gradients_of(parameters_of(blocks));
    EXPECT_EQ(pipeline.eval({inputs}, {.target = targets}).losses.size(), 4U);
    expect_equal(gradients_of(parameters_of(blocks)), gradients, "gradient");
  }
}

TEST(Eval, ReleasesEachMicrobatchWhenItIsDone) {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> activations;
  int most_alive = 0;
  const auto watch = [&](const torch::Tensor& tensor) {
    activations.emplace_back(tensor.getIntrusivePtr());
    int alive = 0;
    for (const auto& activation : activations) alive += activation.use_count() > 0 ? 1 : 0;
    most_alive = std::max(most_alive, alive);
  };
  ScheduleInterleaved1F1B pipeline(
      make_stages(
          [&](torch::Tensor x) {
            torch::Tensor hidden = x * 2;
            watch(hidden);
            return hidden;
          },
          [](torch::Tensor x) { return x.sum(); }),
      {.num_microbatches = 8, .num_ranks = 1, .output_merge_spec = ChunkSpec::sum()});
  pipeline.eval({torch::ones({8, 1})});
  EXPECT_EQ(activations.size(), 8U);
  // One rank runs forwards in groups; what it holds is what waits for the second stage.
  EXPECT_LT(most_alive, 8);
  for (const auto& activation : activations) EXPECT_EQ(activation.use_count(), 0U);
}

}  // namespace
}  // namespace penstock
