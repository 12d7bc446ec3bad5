#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/libtorch/compat.h"
#include "tests/run/autograd/stages.h"

namespace penstock::testing {
namespace {

// Counts the bytes of the tensors that a thread allocates and frees.
struct MemoryMeter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*pointer*/, std::int64_t size, MemoryTotal /*allocated*/,
                         MemoryTotal /*reserved*/, c10::Device /*device*/) override {
    bytes += size;
    peak_bytes = std::max(peak_bytes, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;
};

struct MeasuredBackward {
  std::int64_t after_forward = 0;
  std::int64_t input_half_peak = 0;
  std::int64_t between_halves = 0;
  std::int64_t after_weight_half = 0;
};

// Bytes on top of parameters, their gradients, input, seed and input gradient.
MeasuredBackward measure(Stage& stage, const at::Tensor& input) {
  for (at::Tensor& parameter : stage.parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  const auto meter = std::make_shared<MemoryMeter>();
  const Tensors inputs = leaves_of({input});
  const Tensors seeds = {torch::ones_like(input)};
  Tensors input_gradients;
  BackwardGraph graph;
  MeasuredBackward result;
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  graph.record(stage.forward(inputs), inputs);
  result.after_forward = meter->bytes;
  meter->peak_bytes = meter->bytes;
  graph.backward_input(seeds, input_gradients);
  result.input_half_peak = meter->peak_bytes;
  input_gradients.clear();
  result.between_halves = meter->bytes;
  graph.backward_weight(WeightGradients::Exact);
  result.after_weight_half = meter->bytes;
  return result;
}

TEST(Memory, OfAnMlpHoldsInputsAndGradientsOfTheLayersForTheWeights) {
  constexpr int kNumLayers = 8;
  const std::shared_ptr<Stage> stage = stage_of<MlpStage>(kNumLayers, 64)();
  const std::int64_t activation = 64 * 64 * 4;
  const MeasuredBackward measured = measure(*stage, torch::randn({64, 64}));
  // Each layer but the first keeps its input, which is new, and GELU keeps its own.
  EXPECT_EQ(measured.after_forward, 2 * (kNumLayers - 1) * activation);
  // What GELU kept goes; the gradient of each layer's output, but for the seed, comes.
  EXPECT_EQ(measured.between_halves, 2 * (kNumLayers - 1) * activation);
  // Both happens layer by layer.
  EXPECT_LE(measured.input_half_peak, measured.after_forward + 2 * activation);
  EXPECT_EQ(measured.after_weight_half, 0);
}

TEST(Memory, OfATransformerBlockHoldsNoAttentionForTheWeights) {
  constexpr std::int64_t kLength = 256;
  constexpr std::int64_t kWidth = 16;
  const std::shared_ptr<Stage> stage = stage_of<TransformerBlockStage>(kWidth, 2)();
  const std::int64_t activation = kLength * kWidth * 4;
  const std::int64_t attention = 2 * kLength * kLength * 4;
  const std::int64_t statistics = 2 * 2 * kLength * 4;  // mean and deviation for two layer norms
  const MeasuredBackward measured = measure(*stage, torch::randn({1, kLength, kWidth}));
  EXPECT_GE(measured.after_forward, attention + 15 * activation);
  // Inputs: query_key_value 1, projection 1, feed_forward_norm 1, widen 1, narrow 4. Gradients:
  // attention_norm 1, query_key_value 3, projection 1, feed_forward_norm 1, widen 4; the seed is
  // narrow's.
  EXPECT_EQ(measured.between_halves, (8 + 10) * activation + statistics);
  EXPECT_EQ(measured.after_weight_half, 0);
}

}  // namespace
}  // namespace penstock::testing
