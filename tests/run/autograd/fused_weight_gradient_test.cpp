#include "penstock/run/autograd/internal/fused_weight_gradient.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"
#include "tests/run/autograd/stages.h"

namespace penstock::testing {
namespace {

// output = input weight^T + bias, with gradients to add to.
struct LinearLayer {
  LinearLayer() {
    torch::manual_seed(2);
    weight = torch::randn({5, 4}).requires_grad_();
    bias = torch::randn({5}).requires_grad_();
    weight.mutable_grad() = torch::ones({5, 4});
    bias.mutable_grad() = torch::ones({5});
    input = torch::randn({3, 4});
    gradient = torch::randn({3, 5});
  }

  at::Tensor forward() const { return torch::addmm(bias, input, weight.t()); }

  at::Tensor weight, bias, input, gradient;
};

bool add_fused(const at::Tensor& output, const at::Tensor& gradient) {
  return add_fused_weight_gradient(*output.grad_fn(), gradient);
}

TEST(FusedWeightGradient, AddsToWeightAndBias) {
  const LinearLayer layer;
  EXPECT_TRUE(add_fused(layer.forward(), layer.gradient));
  EXPECT_TRUE(torch::allclose(layer.weight.grad(), 1 + layer.gradient.t().matmul(layer.input)));
  EXPECT_TRUE(torch::allclose(layer.bias.grad(), 1 + layer.gradient.sum(0)));
}

TEST(FusedWeightGradient, AddsForAProductWithoutBias) {
  const LinearLayer layer;
  EXPECT_TRUE(add_fused(torch::mm(layer.input, layer.weight.t()), layer.gradient));
  EXPECT_TRUE(torch::allclose(layer.weight.grad(), 1 + layer.gradient.t().matmul(layer.input)));
}

TEST(FusedWeightGradient, AddsWithTheScalesOfAddmm) {
  const LinearLayer layer;
  const at::Tensor output = torch::addmm(layer.bias, layer.input, layer.weight.t(), 2, 3);
  EXPECT_FALSE(add_fused(output, layer.gradient));  // the scaled bias is left
  EXPECT_TRUE(torch::allclose(layer.weight.grad(), 1 + 3 * layer.gradient.t().matmul(layer.input)));
  output.backward(layer.gradient);
  EXPECT_TRUE(torch::allclose(layer.weight.grad(), 1 + 3 * layer.gradient.t().matmul(layer.input)));
  EXPECT_TRUE(torch::allclose(layer.bias.grad(), 1 + 2 * layer.gradient.sum(0)));
}

TEST(FusedWeightGradient, LeavesToTheEngineWhatItCannotAdd) {
  const auto expect_left = [](const LinearLayer& layer, const at::Tensor& output) {
    const at::Tensor before =
        layer.weight.grad().defined() ? layer.weight.grad().clone() : at::Tensor();
    EXPECT_FALSE(add_fused(output, layer.gradient));
    expect_equal({layer.weight.grad()}, {before});
    EXPECT_TRUE(output.grad_fn()->next_edges().back().is_valid());
  };
  {
    SCOPED_TRACE("no gradient to add to");
    const LinearLayer layer;
    layer.weight.mutable_grad().reset();
    expect_left(layer, layer.forward());
  }
  {
    SCOPED_TRACE("gradient of another type");
    const LinearLayer layer;
    layer.weight.unsafeGetTensorImpl()->mutable_grad() = torch::ones({5, 4}, torch::kDouble);
    expect_left(layer, layer.forward());
  }
  {
    SCOPED_TRACE("hook on the weight");
    const LinearLayer layer;
    layer.weight.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    expect_left(layer, layer.forward());
  }
  {
    SCOPED_TRACE("hook on the transposed weight");
    const LinearLayer layer;
    const at::Tensor transposed = layer.weight.t();
    transposed.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    expect_left(layer, torch::addmm(layer.bias, layer.input, transposed));
  }
  {
    SCOPED_TRACE("weight that is computed");
    const LinearLayer layer;
    expect_left(layer, torch::addmm(layer.bias, layer.input, (layer.weight * 2).t()));
  }
  {
    SCOPED_TRACE("weight that is not transposed");
    const LinearLayer layer;
    expect_left(layer, torch::mm(torch::randn({3, 5}), layer.weight));
  }
  {
    SCOPED_TRACE("another operation");
    const LinearLayer layer;
    expect_left(layer, layer.bias * 2);
  }
}

void expect_close_to_exact(const MakeStage& make_stage, const std::vector<Tensors>& microbatches) {
  const Gradients exact = train(*make_stage(), microbatches, Backward::Split);
  const Gradients fused = train(*make_stage(), microbatches, Backward::SplitFused);
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    expect_equal(fused.inputs[i], exact.inputs[i]);
  }
  ASSERT_EQ(fused.parameters.size(), exact.parameters.size());
  for (std::size_t i = 0; i < exact.parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(fused.parameters[i], exact.parameters[i], 1e-4, 1e-4)) << i;
  }
}

TEST(FusedWeightGradient, AccumulatesMicrobatchesOfAnMlp) {
  expect_close_to_exact(stage_of<MlpStage>(3, 32),
                        std::vector<Tensors>(4, {torch::randn({300, 32})}));
}

TEST(FusedWeightGradient, AccumulatesMicrobatchesOfATransformerBlock) {
  expect_close_to_exact(stage_of<TransformerBlockStage>(16, 2),
                        std::vector<Tensors>(4, {torch::randn({2, 20, 16})}));
}

TEST(FusedWeightGradient, AccumulatesMicrobatchesOfConvolutions) {
  expect_close_to_exact(stage_of<ConvolutionStage>(),
                        std::vector<Tensors>(3, {torch::randn({2, 3, 8, 8})}));
}

TEST(FusedWeightGradient, CallsTheHooksOfParameters) {
  int num_calls = 0;
  const MakeStage make_stage = [&] {
    std::shared_ptr<Stage> stage = stage_of<MlpStage>(2, 8)();
    stage->parameters()[0].register_hook([&num_calls](const at::Tensor& gradient) {
      ++num_calls;
      return gradient * 3;
    });
    return stage;
  };
  expect_close_to_exact(make_stage, std::vector<Tensors>(3, {torch::randn({4, 8})}));
  EXPECT_EQ(num_calls, 6);  // three microbatches, exact and fused
}

// Three-dimensional inputs reach the weight through a view and a plain product.
TEST(FusedWeightGradient, TakesLinearLayersOfThreeDimensionalInputs) {
  torch::nn::Linear linear(4, 5);
  linear->weight.mutable_grad() = torch::zeros({5, 4});
  const at::Tensor output = torch::matmul(torch::randn({2, 3, 4}), linear->weight.t());
  const auto product = output.grad_fn()->next_edge(0).function;
  EXPECT_TRUE(add_fused_weight_gradient(*product, torch::randn({6, 5})));
}

}  // namespace
}  // namespace penstock::testing
