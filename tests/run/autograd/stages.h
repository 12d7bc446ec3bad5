#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"

// Small stages for tests of the backward, and what compares their gradients.
namespace penstock::testing {

using Tensors = std::vector<at::Tensor>;

// A stage as its backward sees it: some tensors in, some tensors out, parameters by name.
struct Stage : torch::nn::Module {
  virtual Tensors forward(const Tensors& inputs) = 0;
};

// Makes the same stage every time, down to the last bit of its parameters.
using MakeStage = std::function<std::shared_ptr<Stage>()>;

// MakeStage for a stage type with these constructor arguments.
template <class Type, class... Arguments>
MakeStage stage_of(Arguments... arguments) {
  return [arguments...]() -> std::shared_ptr<Stage> {
    torch::manual_seed(1);
    return std::make_shared<Type>(arguments...);
  };
}

// A stage whose forward is `function` of its parameters, p0, p1, ..., and of its inputs.
using StageFunction = std::function<Tensors(const Tensors& parameters, const Tensors& inputs)>;
MakeStage stage_of(std::vector<std::vector<std::int64_t>> parameter_shapes, StageFunction function);

// Linear layers of width `width` with GELU between them.
struct MlpStage : Stage {
  MlpStage(int num_layers, std::int64_t width);
  Tensors forward(const Tensors& inputs) override;
  std::vector<torch::nn::Linear> layers;
};

// Layer norm, attention and feed-forward, the latter two with a residual; 3-D inputs.
struct TransformerBlockStage : Stage {
  TransformerBlockStage(std::int64_t width, std::int64_t num_heads);
  Tensors forward(const Tensors& inputs) override;
  std::int64_t num_heads;
  torch::nn::LayerNorm attention_norm{nullptr}, feed_forward_norm{nullptr};
  torch::nn::Linear query_key_value{nullptr}, projection{nullptr}, widen{nullptr}, narrow{nullptr};
};

struct ConvolutionStage : Stage {
  ConvolutionStage();
  Tensors forward(const Tensors& inputs) override;
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};

// Leaves for one microbatch: detached copies that need a gradient where that is possible.
Tensors leaves_of(const Tensors& tensors);

// A seed for each output that can have a gradient; the same every time for the same shapes.
Tensors seeds_for(const Tensors& outputs);

enum class Backward { Reference, Full, Split, SplitFused };

// What a stage is left with after some microbatches.
struct Gradients {
  std::vector<Tensors> inputs;  // of each microbatch
  Tensors parameters;
};

// Runs forward and backward for each microbatch, so that parameters get their gradients in `order`
// (as listed if empty). The split backwards run every I before any W.
Gradients train(Stage& stage, const std::vector<Tensors>& microbatches, Backward backward,
                std::vector<std::size_t> order = {});

// Full and Split give what libtorch's own backward gives, bit for bit.
void expect_equal_to_reference(const MakeStage& make_stage,
                               const std::vector<Tensors>& microbatches);

// Both undefined, or equal in every bit.
void expect_equal(const Tensors& actual, const Tensors& expected);

}  // namespace penstock::testing
