#include "tests/run/autograd/stages.h"

#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

struct FunctionStage : Stage {
  FunctionStage(const std::vector<std::vector<std::int64_t>>& shapes, StageFunction stage_function)
      : function(std::move(stage_function)) {
    for (const std::vector<std::int64_t>& shape : shapes) {
      const std::string name = "p" + std::to_string(values.size());
      values.push_back(register_parameter(name, torch::randn(shape)));
    }
  }

  Tensors forward(const Tensors& inputs) override { return function(values, inputs); }

  StageFunction function;
  Tensors values;
};

void run_reference(const Tensors& outputs, const Tensors& seeds) {
  Tensors roots;
  Tensors gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!seeds[i].defined()) continue;
    roots.push_back(outputs[i]);
    gradients.push_back(seeds[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

}  // namespace

MakeStage stage_of(std::vector<std::vector<std::int64_t>> parameter_shapes,
                   StageFunction function) {
  return [parameter_shapes, function]() -> std::shared_ptr<Stage> {
    torch::manual_seed(1);
    return std::make_shared<FunctionStage>(parameter_shapes, function);
  };
}

MlpStage::MlpStage(int num_layers, std::int64_t width) {
  for (int i = 0; i < num_layers; ++i) {
    layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(width, width)));
  }
}

Tensors MlpStage::forward(const Tensors& inputs) {
  at::Tensor hidden = layers.front()(inputs.at(0));
  for (std::size_t i = 1; i < layers.size(); ++i) hidden = layers[i](torch::gelu(hidden));
  return {hidden};
}

TransformerBlockStage::TransformerBlockStage(std::int64_t width, std::int64_t heads)
    : num_heads(heads) {
  using torch::nn::LayerNorm;
  using torch::nn::LayerNormOptions;
  using torch::nn::Linear;
  attention_norm = register_module("attention_norm", LayerNorm(LayerNormOptions({width})));
  query_key_value = register_module("query_key_value", Linear(width, 3 * width));
  projection = register_module("projection", Linear(width, width));
  feed_forward_norm = register_module("feed_forward_norm", LayerNorm(LayerNormOptions({width})));
  widen = register_module("widen", Linear(width, 4 * width));
  narrow = register_module("narrow", Linear(4 * width, width));
}

Tensors TransformerBlockStage::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs.at(0);
  const std::int64_t batch = x.size(0);
  const std::int64_t length = x.size(1);
  const std::int64_t width = x.size(2);
  const at::Tensor heads = query_key_value(attention_norm(x))
                               .view({batch, length, 3, num_heads, width / num_heads})
                               .permute({2, 0, 3, 1, 4});
  const at::Tensor scores = torch::matmul(heads[0], heads[1].transpose(-2, -1)) /
                            std::sqrt(static_cast<double>(width / num_heads));
  const at::Tensor mixed = torch::matmul(torch::softmax(scores, -1), heads[2]);
  const at::Tensor y = x + projection(mixed.transpose(1, 2).reshape({batch, length, width}));
  return {y + narrow(torch::gelu(widen(feed_forward_norm(y))))};
}

ConvolutionStage::ConvolutionStage() {
  first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
  norm = register_module("norm", torch::nn::BatchNorm2d(4));
  second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 2, 3)));
}

Tensors ConvolutionStage::forward(const Tensors& inputs) {
  return {second(torch::relu(norm(first(inputs.at(0)))))};
}

Tensors leaves_of(const Tensors& tensors) {
  Tensors leaves;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor& leaf = leaves.emplace_back(tensor.detach().clone());
    if (leaf.is_floating_point() || leaf.is_complex()) leaf.requires_grad_();
  }
  return leaves;
}

Tensors seeds_for(const Tensors& outputs) {
  Tensors seeds;
  for (const at::Tensor& output : outputs) {
    at::Tensor& seed = seeds.emplace_back();
    if (!output.defined() || !output.requires_grad()) continue;
    // Not the global generator, which threads share.
    const at::Generator generator = at::detail::createCPUGenerator(7 + seeds.size());
    seed = torch::randn(output.sizes(), generator, output.options().requires_grad(false));
  }
  return seeds;
}

Gradients train(Stage& stage, const std::vector<Tensors>& microbatches, Backward backward,
                std::vector<std::size_t> order) {
  const bool is_split = backward == Backward::Split || backward == Backward::SplitFused;
  const std::size_t count = microbatches.size();
  if (order.empty()) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0);
  }
  Gradients result;
  result.inputs.resize(count);
  std::vector<BackwardGraph> graphs(count);
  for (std::size_t step = 0; step < count; ++step) {
    const std::size_t i = is_split ? step : order[step];
    const Tensors inputs = leaves_of(microbatches[i]);
    const Tensors outputs = stage.forward(inputs);
    const Tensors seeds = seeds_for(outputs);
    if (backward == Backward::Reference) {
      run_reference(outputs, seeds);
      for (const at::Tensor& input : inputs) result.inputs[i].push_back(input.grad());
      continue;
    }
    graphs[i].record(outputs, inputs);
    if (is_split) {
      graphs[i].backward_input(seeds, result.inputs[i]);
    } else {
      graphs[i].backward(seeds, result.inputs[i]);
    }
  }
  const WeightGradients mode =
      backward == Backward::SplitFused ? WeightGradients::Fused : WeightGradients::Exact;
  for (const std::size_t i : order) {
    if (is_split) graphs[i].backward_weight(mode);
  }
  for (const at::Tensor& parameter : stage.parameters()) {
    result.parameters.push_back(parameter.grad());
  }
  return result;
}

void expect_equal(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << "at " << i;
    if (!actual[i].defined()) continue;
    EXPECT_TRUE(torch::equal(actual[i], expected[i])) << "at " << i << "\nactual:\n"
                                                      << actual[i] << "\nexpected:\n"
                                                      << expected[i];
  }
}

void expect_equal_to_reference(const MakeStage& make_stage,
                               const std::vector<Tensors>& microbatches) {
  const Gradients expected = train(*make_stage(), microbatches, Backward::Reference);
  for (const Backward backward : {Backward::Full, Backward::Split}) {
    SCOPED_TRACE(backward == Backward::Full ? "full" : "split");
    const Gradients actual = train(*make_stage(), microbatches, backward);
    for (std::size_t i = 0; i < microbatches.size(); ++i) {
      SCOPED_TRACE("inputs of microbatch " + std::to_string(i));
      expect_equal(actual.inputs[i], expected.inputs[i]);
    }
    SCOPED_TRACE("parameters");
    expect_equal(actual.parameters, expected.parameters);
  }
}

}  // namespace penstock::testing
