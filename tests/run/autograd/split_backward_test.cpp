#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"
#include "tests/run/autograd/stages.h"

namespace penstock::testing {
namespace {

std::vector<Tensors> microbatches_of(int count,
                                     const std::vector<std::vector<std::int64_t>>& shapes) {
  torch::manual_seed(3);
  std::vector<Tensors> microbatches(static_cast<std::size_t>(count));
  for (Tensors& microbatch : microbatches) {
    for (const std::vector<std::int64_t>& shape : shapes) microbatch.push_back(torch::randn(shape));
  }
  return microbatches;
}

TEST(SplitBackward, OfAnMlp) {
  expect_equal_to_reference(stage_of<MlpStage>(4, 16), microbatches_of(3, {{8, 16}}));
}

TEST(SplitBackward, OfATransformerBlock) {
  expect_equal_to_reference(stage_of<TransformerBlockStage>(16, 2),
                            microbatches_of(3, {{2, 6, 16}}));
}

TEST(SplitBackward, OfConvolutionsAndBatchNorm) {
  expect_equal_to_reference(stage_of<ConvolutionStage>(), microbatches_of(3, {{2, 3, 8, 8}}));
}

// The weight and the two biases of tied layers, registered in the order given.
struct TiedStage : Stage {
  explicit TiedStage(const std::string& order) {
    for (const char name : order) {
      const bool is_weight = name == 'w';
      at::Tensor& parameter = is_weight ? weight : name == 'a' ? first_bias : second_bias;
      parameter = register_parameter(std::string(1, name),
                                     is_weight ? torch::randn({4, 4}) : torch::randn({4}));
    }
  }
  Tensors forward(const Tensors& inputs) override {
    const at::Tensor hidden = torch::relu(torch::addmm(first_bias, inputs[0], weight.t()));
    return {torch::addmm(second_bias, hidden, weight.t())};
  }
  at::Tensor weight, first_bias, second_bias;
};

TEST(SplitBackward, OfTiedWeightsInAnyOrderOfRegistration) {
  for (const char* order : {"wab", "wba", "awb", "bwa", "abw", "baw"}) {
    SCOPED_TRACE(order);
    expect_equal_to_reference(stage_of<TiedStage>(std::string(order)),
                              microbatches_of(2, {{3, 4}}));
  }
}

TEST(SplitBackward, OfOneWeightInTwoProducts) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    return {torch::relu(x[0].matmul(p[0])).matmul(p[0])};
  };
  expect_equal_to_reference(stage_of({{4, 4}}, forward), microbatches_of(3, {{3, 4}}));
}

TEST(SplitBackward, OfAWeightDerivedOnceAndUsedTwice) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor weight = p[0] / p[0].norm() * p[1];
    return {torch::tanh(x[0].matmul(weight)).matmul(weight)};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {4}}, forward), microbatches_of(3, {{3, 4}}));
}

TEST(SplitBackward, OfSeveralInputsAndOutputs) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor both = x[0].matmul(p[0]) + x[1].matmul(p[1]);
    return {both.sin(), both * x[0], (x[1] * p[2]).sum()};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {4, 4}, {4}}, forward),
                            microbatches_of(2, {{3, 4}, {3, 4}}));
}

TEST(SplitBackward, OfViewsAsOutputs) {
  struct LinearStage : Stage {
    LinearStage() { linear = register_module("linear", torch::nn::Linear(4, 6)); }
    Tensors forward(const Tensors& inputs) override {
      const at::Tensor output = linear(inputs[0]);
      return {output, output.view({-1, 3}), output.select(0, 1)};
    }
    torch::nn::Linear linear{nullptr};
  };
  expect_equal_to_reference(stage_of<LinearStage>(), microbatches_of(2, {{2, 3, 4}}));
}

TEST(SplitBackward, OfFrozenParameters) {
  struct FrozenStage : MlpStage {
    FrozenStage() : MlpStage(3, 4) {
      layers[0]->weight.requires_grad_(false);
      layers[1]->bias.requires_grad_(false);
      layers[2]->weight.requires_grad_(false);
      layers[2]->bias.requires_grad_(false);
    }
  };
  expect_equal_to_reference(stage_of<FrozenStage>(), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfParametersThatNoInputLeadsTo) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor free = p[0].sin();
    return {x[0].matmul(p[1]) + free, free * 2, p[2].exp().sum()};
  };
  expect_equal_to_reference(stage_of({{4}, {4, 4}, {5}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfIntegerInputs) {
  struct EmbeddingStage : Stage {
    EmbeddingStage() {
      embedding = register_module("embedding", torch::nn::Embedding(10, 4));
      linear = register_module("linear", torch::nn::Linear(4, 4));
    }
    Tensors forward(const Tensors& inputs) override {
      return {linear(embedding(inputs[0])), inputs[0] + 1};
    }
    torch::nn::Embedding embedding{nullptr};
    torch::nn::Linear linear{nullptr};
  };
  expect_equal_to_reference(stage_of<EmbeddingStage>(),
                            {{torch::arange(6).view({2, 3})}, {torch::arange(3, 9).view({2, 3})}});
}

TEST(SplitBackward, OfAParameterAsOutput) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    return {x[0].matmul(p[0]), p[0], p[1]};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {3}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfAnInputReturnedUnchanged) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    return {x[0], x[0].matmul(p[0]), x[1]};
  };
  expect_equal_to_reference(stage_of({{4, 4}}, forward), microbatches_of(2, {{3, 4}, {2}}));
}

TEST(SplitBackward, OfNothingButAnInput) {
  const auto forward = [](const Tensors&, const Tensors& x) -> Tensors { return {x[0]}; };
  expect_equal_to_reference(stage_of({{2}}, forward), microbatches_of(1, {{3}}));
}

TEST(SplitBackward, OfATensorReturnedTwice) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor product = x[0].matmul(p[0]);
    const at::Tensor free = p[1].exp();
    return {product, free, product, free};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {3}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfAnOutputThatLeadsToAnother) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor first = x[0].matmul(p[0]);
    return {first, torch::tanh(first).matmul(p[1])};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {4, 4}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfAnUnusedInput) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors { return {x[1] * p[0]}; };
  const std::vector<Tensors> microbatches = microbatches_of(1, {{4}, {4}});
  const MakeStage make_stage = stage_of({{4}}, forward);
  expect_equal_to_reference(make_stage, microbatches);
  const Gradients gradients = train(*make_stage(), microbatches, Backward::Split);
  EXPECT_FALSE(gradients.inputs[0][0].defined());
  EXPECT_TRUE(gradients.inputs[0][1].defined());
}

TEST(SplitBackward, OfComplexTensors) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const at::Tensor product = x[0] * p[0];
    return {product, torch::view_as_real(product * product) * p[1]};
  };
  expect_equal_to_reference(stage_of({{4}, {2}}, forward),
                            {{torch::view_as_complex(torch::randn({3, 4, 2}))}});
}

TEST(SplitBackward, OfChangesInPlace) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    at::Tensor hidden = x[0].matmul(p[0]);
    hidden.slice(1, 0, 2).mul_(p[1]);
    return {hidden.add_(p[2]).sigmoid_().matmul(p[0])};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {2}, {4}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, OfAnInputWrittenIntoAParameter) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    at::Tensor mixed = p[0].clone();
    mixed.slice(0, 1, 3).copy_(x[0]);
    mixed.select(0, 2).mul_(x[1]).mul_(p[1]);
    return {mixed.matmul(p[0])};
  };
  expect_equal_to_reference(stage_of({{4, 4}, {4}}, forward), microbatches_of(2, {{2, 4}, {4}}));
}

TEST(SplitBackward, OfPartsOfOneTensor) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const Tensors parts = x[0].matmul(p[0]).chunk(3, 1);
    return {parts[0] * parts[2] * p[1]};  // the middle part gets no gradient
  };
  expect_equal_to_reference(stage_of({{4, 6}, {2}}, forward), microbatches_of(2, {{3, 4}}));
}

// (a, w) -> (a w, a + w): two inputs, two outputs. Counts what it computes.
struct TwoByTwo : torch::autograd::Function<TwoByTwo> {
  static inline std::array<int, 2> computed{};

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& a, const at::Tensor& w) {
    context->save_for_backward({a, w});
    return {a * w, a + w};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    torch::autograd::variable_list result(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!context->needs_input_grad(i)) continue;
      ++computed[i];
      result[i] = gradients[0] * saved[1 - i] + gradients[1];
    }
    return result;
  }
};

TEST(SplitBackward, OfANodeWithSeveralOutputs) {
  const auto forward = [](const Tensors& p, const Tensors& x) -> Tensors {
    const Tensors parts = x[0].chunk(2, 1);
    const Tensors both = TwoByTwo::apply(parts[0], p[0]);
    return {both[0] * parts[1] + both[1], both[1]};
  };
  expect_equal_to_reference(stage_of({{3, 2}}, forward), microbatches_of(2, {{3, 4}}));
}

TEST(SplitBackward, AsksACustomFunctionForEachHalfOnce) {
  const MakeStage make_stage =
      stage_of({{3, 4}}, [](const Tensors& p, const Tensors& x) -> Tensors {
        return {TwoByTwo::apply(x[0], p[0])[0]};
      });
  const std::shared_ptr<Stage> stage = make_stage();
  const Tensors inputs = leaves_of({torch::randn({3, 4})});
  const Tensors outputs = stage->forward(inputs);
  BackwardGraph graph;
  Tensors input_gradients;
  TwoByTwo::computed = {};
  graph.record(outputs, inputs);
  graph.backward_input(seeds_for(outputs), input_gradients);
  EXPECT_EQ(TwoByTwo::computed, (std::array{1, 0}));
  graph.backward_weight(WeightGradients::Exact);
  EXPECT_EQ(TwoByTwo::computed, (std::array{1, 1}));
}

TEST(SplitBackward, RunsWeightHalvesInAnyOrder) {
  const MakeStage make_stage = stage_of<TransformerBlockStage>(8, 2);
  const std::vector<Tensors> microbatches = microbatches_of(4, {{1, 3, 8}});
  const std::vector<std::size_t> order = {2, 0, 3, 1};
  const Gradients expected = train(*make_stage(), microbatches, Backward::Reference, order);
  const Gradients actual = train(*make_stage(), microbatches, Backward::Split, order);
  expect_equal(actual.parameters, expected.parameters);
  for (std::size_t i = 0; i < 4; ++i) expect_equal(actual.inputs[i], expected.inputs[i]);
}

TEST(SplitBackward, AccumulatesTenMicrobatchesThroughOneGraph) {
  const MakeStage make_stage = stage_of<MlpStage>(2, 8);
  const std::vector<Tensors> microbatches = microbatches_of(10, {{4, 8}});
  const Gradients expected = train(*make_stage(), microbatches, Backward::Reference);
  const std::shared_ptr<Stage> stage = make_stage();
  BackwardGraph graph;
  Tensors input_gradients;
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    const Tensors inputs = leaves_of(microbatches[i]);
    const Tensors outputs = stage->forward(inputs);
    graph.record(outputs, inputs);
    graph.backward_input(seeds_for(outputs), input_gradients);
    graph.backward_weight(WeightGradients::Exact);
    expect_equal(input_gradients, expected.inputs[i]);
  }
  Tensors actual;
  for (const at::Tensor& parameter : stage->parameters()) actual.push_back(parameter.grad());
  expect_equal(actual, expected.parameters);
}

TEST(SplitBackward, LeavesParametersAloneInTheInputHalf) {
  const std::shared_ptr<Stage> stage = stage_of<TransformerBlockStage>(8, 2)();
  const Tensors inputs = leaves_of({torch::randn({2, 3, 8})});
  const Tensors outputs = stage->forward(inputs);
  BackwardGraph graph;
  Tensors input_gradients;
  graph.record(outputs, inputs);
  graph.backward_input(seeds_for(outputs), input_gradients);
  for (const at::Tensor& parameter : stage->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_FALSE(inputs[0].grad().defined());
  graph.backward_weight(WeightGradients::Exact);
  for (const at::Tensor& parameter : stage->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(SplitBackward, StartsFromTheOutputsThatHaveAGradient) {
  const MakeStage make_stage =
      stage_of({{4, 4}, {4, 4}}, [](const Tensors& p, const Tensors& x) -> Tensors {
        return {x[0].matmul(p[0]), x[1].matmul(p[1])};
      });
  const Tensors inputs = leaves_of({torch::randn({3, 4}), torch::randn({3, 4})});
  for (const bool is_split : {false, true}) {
    const std::shared_ptr<Stage> stage = make_stage();
    const Tensors outputs = stage->forward(inputs);
    BackwardGraph graph;
    Tensors input_gradients;
    graph.record(outputs, inputs);
    const Tensors seeds = {torch::Tensor(), torch::ones({3, 4})};
    if (is_split) {
      graph.backward_input(seeds, input_gradients);
      graph.backward_weight(WeightGradients::Exact);
    } else {
      graph.backward(seeds, input_gradients);
    }
    EXPECT_FALSE(input_gradients[0].defined());
    EXPECT_TRUE(input_gradients[1].defined());
    EXPECT_FALSE(stage->parameters()[0].grad().defined());
    EXPECT_TRUE(stage->parameters()[1].grad().defined());
  }
}

}  // namespace
}  // namespace penstock::testing
