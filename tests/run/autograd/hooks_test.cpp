#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"
#include "tests/run/autograd/stages.h"

namespace penstock::testing {
namespace {

const std::vector<Tensors>& microbatches() {
  static const std::vector<Tensors> kMicrobatches = [] {
    torch::manual_seed(5);
    return std::vector<Tensors>{{torch::randn({3, 4})}, {torch::randn({3, 4})}};
  }();
  return kMicrobatches;
}

// Two products with a ReLU between them. `watch` gets every tensor by name, and may add hooks.
using Watch = std::function<void(const std::string& name, at::Tensor& tensor)>;

MakeStage watched_stage(const Watch& watch) {
  return stage_of({{4, 4}, {4, 4}}, [watch](const Tensors& p, const Tensors& x) -> Tensors {
    at::Tensor input = x[0];
    watch("input", input);
    at::Tensor product = input.matmul(p[0]);
    watch("product", product);
    at::Tensor activation = torch::relu(product);
    watch("activation", activation);
    at::Tensor weight = p[1] * 2;
    watch("weight", weight);
    at::Tensor output = activation.matmul(weight);
    watch("output", output);
    return {output};
  });
}

class TensorHooks : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorHooks, AreCalledOnceAndActOnBothHalves) {
  int num_calls = 0;
  const Watch watch = [&num_calls](const std::string& name, at::Tensor& tensor) {
    if (name != GetParam()) return;
    tensor.register_hook([&num_calls](const at::Tensor& gradient) {
      ++num_calls;
      return gradient * 3;
    });
  };
  const MakeStage make_stage = watched_stage(watch);
  expect_equal_to_reference(make_stage, microbatches());
  num_calls = 0;
  train(*make_stage(), microbatches(), Backward::Split);
  EXPECT_EQ(num_calls, 2);
}

TEST_P(TensorHooks, ChangeTheGradientsOfThisStage) {
  // Else the test above would compare gradients that no hook has touched.
  const auto hook = [](const std::string& name, at::Tensor& tensor) {
    if (name == GetParam()) tensor.register_hook([](const at::Tensor& g) { return g * 3; });
  };
  const auto nothing = [](const std::string&, at::Tensor&) {};
  const Gradients with = train(*watched_stage(hook)(), microbatches(), Backward::Split);
  const Gradients without = train(*watched_stage(nothing)(), microbatches(), Backward::Split);
  EXPECT_FALSE(torch::equal(with.parameters[1], without.parameters[1]) &&
               torch::equal(with.parameters[0], without.parameters[0]) &&
               torch::equal(with.inputs[0][0], without.inputs[0][0]));
}

TEST_P(TensorHooks, AreCalledInTheHalfTheTensorBelongsTo) {
  int num_calls = 0;
  const std::shared_ptr<Stage> stage =
      watched_stage([&num_calls](const std::string& name, at::Tensor& tensor) {
        if (name != GetParam()) return;
        tensor.register_hook([&num_calls](const at::Tensor&) { ++num_calls; });
      })();
  const Tensors inputs = leaves_of(microbatches()[0]);
  const Tensors outputs = stage->forward(inputs);
  BackwardGraph graph;
  Tensors input_gradients;
  graph.record(outputs, inputs);
  graph.backward_input(seeds_for(outputs), input_gradients);
  EXPECT_EQ(num_calls, std::string(GetParam()) == "weight" ? 0 : 1);
  graph.backward_weight(WeightGradients::Exact);
  EXPECT_EQ(num_calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, TensorHooks,
                         ::testing::Values("input", "product", "activation", "weight", "output"));

TEST(Hooks, OfParametersAreCalledOnce) {
  int num_calls = 0;
  const MakeStage plain = watched_stage([](const std::string&, at::Tensor&) {});
  const MakeStage make_stage = [&] {
    std::shared_ptr<Stage> stage = plain();
    stage->parameters()[0].register_hook([&num_calls](const at::Tensor& gradient) {
      ++num_calls;
      return gradient * 3;
    });
    return stage;
  };
  expect_equal_to_reference(make_stage, microbatches());
  num_calls = 0;
  train(*make_stage(), microbatches(), Backward::Split);
  EXPECT_EQ(num_calls, 2);
}

// Counts its calls and multiplies what the node has computed.
class ScalingPostHook final : public torch::autograd::FunctionPostHook {
 public:
  ScalingPostHook(int& num_calls, std::vector<int>& num_outputs)
      : num_calls_(num_calls), num_outputs_(num_outputs) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    ++num_calls_;
    torch::autograd::variable_list scaled;
    int num_defined = 0;
    for (const at::Tensor& output : outputs) {
      num_defined += output.defined() ? 1 : 0;
      scaled.push_back(output.defined() ? output * 3 : output);
    }
    num_outputs_.push_back(num_defined);
    return scaled;
  }

 private:
  int& num_calls_;
  std::vector<int>& num_outputs_;
};

class NodeHooks : public ::testing::TestWithParam<const char*> {};

TEST_P(NodeHooks, OnResultsAreCalledOnceWithAllOfThem) {
  int num_calls = 0;
  std::vector<int> num_outputs;
  const MakeStage make_stage = watched_stage([&](const std::string& name, at::Tensor& tensor) {
    if (name != GetParam()) return;
    tensor.grad_fn()->add_post_hook(std::make_unique<ScalingPostHook>(num_calls, num_outputs));
    if (name != "output") return;
    tensor.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  });
  expect_equal_to_reference(make_stage, microbatches());
  for (const Backward backward : {Backward::Reference, Backward::Split, Backward::SplitFused}) {
    num_calls = 0;
    num_outputs.clear();
    train(*make_stage(), microbatches(), backward);
    EXPECT_EQ(num_calls, 2);
    const std::string name = GetParam();
    const bool is_product = name == "product" || name == "output";
    EXPECT_EQ(num_outputs, std::vector<int>(2, is_product ? 2 : 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, NodeHooks,
                         ::testing::Values("product", "activation", "weight", "output"));

// One use of a weight has a hook and the other has none, and the weight is computed, too.
TEST(NodeHooks, MayBeOnOneOfTwoNodesThatUseAWeight) {
  int num_calls = 0;
  std::vector<int> num_outputs;
  const MakeStage make_stage =
      stage_of({{4, 4}, {4, 4}}, [&](const Tensors& p, const Tensors& x) -> Tensors {
        const at::Tensor weight = p[0].mm(p[1]);
        const at::Tensor first = x[0].mm(weight);
        first.grad_fn()->add_post_hook(std::make_unique<ScalingPostHook>(num_calls, num_outputs));
        return {torch::relu(first).mm(weight).mm(p[0])};
      });
  expect_equal_to_reference(make_stage, microbatches());
  train(*make_stage(), microbatches(), Backward::SplitFused);
}

TEST(NodeHooks, MayBeOnAChangeInPlace) {
  int num_calls = 0;
  std::vector<int> num_outputs;
  const MakeStage make_stage =
      stage_of({{4}, {3, 4}}, [&](const Tensors& p, const Tensors& x) -> Tensors {
        at::Tensor hidden = x[0] * 2;
        hidden.select(0, 1).mul_(p[0]);
        hidden.grad_fn()->add_post_hook(std::make_unique<ScalingPostHook>(num_calls, num_outputs));
        return {hidden * p[1]};
      });
  expect_equal_to_reference(make_stage, microbatches());
  num_calls = 0;
  train(*make_stage(), microbatches(), Backward::Split);
  EXPECT_EQ(num_calls, 2);
}

TEST(Hooks, BehindTheGradientOfAParameterAreCalledInEveryMode) {
  const MakeStage plain = watched_stage([](const std::string&, at::Tensor&) {});
  for (const Backward backward :
       {Backward::Reference, Backward::Full, Backward::Split, Backward::SplitFused}) {
    int num_calls = 0;
    std::vector<int> num_outputs;
    const std::shared_ptr<Stage> stage = plain();
    const auto accumulator = torch::autograd::impl::grad_accumulator(stage->parameters()[0]);
    accumulator->add_post_hook(std::make_unique<ScalingPostHook>(num_calls, num_outputs));
    train(*stage, microbatches(), backward);
    EXPECT_EQ(num_calls, 2);
  }
}

TEST(Hooks, KeepRetainedGradientsAsAFullBackwardDoes) {
  for (const char* name : {"product", "activation", "weight", "output"}) {
    SCOPED_TRACE(name);
    std::vector<Tensors> retained;
    for (const Backward backward : {Backward::Reference, Backward::Split}) {
      Tensors tensors;
      const MakeStage make_stage =
          watched_stage([&](const std::string& watched, at::Tensor& tensor) {
            if (watched != name) return;
            tensor.retain_grad();
            tensors.push_back(tensor);
          });
      train(*make_stage(), microbatches(), backward);
      Tensors& gradients = retained.emplace_back();
      for (const at::Tensor& tensor : tensors) gradients.push_back(tensor.grad());
    }
    ASSERT_EQ(retained[0].size(), 2U);
    ASSERT_TRUE(retained[0][0].defined());
    expect_equal(retained[1], retained[0]);
  }
}

TEST(Hooks, ThatThrowLeaveTheGraphReadyForTheNextMicrobatch) {
  bool shall_throw = true;
  const std::shared_ptr<Stage> stage =
      watched_stage([&shall_throw](const std::string& name, at::Tensor& tensor) {
        if (name != "product") return;
        tensor.register_hook([&shall_throw](const at::Tensor& gradient) {
          if (shall_throw) throw std::runtime_error("the hook has had enough");
          return gradient;
        });
      })();
  BackwardGraph graph;
  Tensors input_gradients;
  const auto run_input_half = [&] {
    const Tensors inputs = leaves_of(microbatches()[0]);
    const Tensors outputs = stage->forward(inputs);
    graph.record(outputs, inputs);
    graph.backward_input(seeds_for(outputs), input_gradients);
  };
  EXPECT_THROW(run_input_half(), std::runtime_error);
  EXPECT_FALSE(graph.is_recorded());
  shall_throw = false;
  run_input_half();
  graph.backward_weight(WeightGradients::Exact);
  const Gradients expected = train(*watched_stage([](const std::string&, at::Tensor&) {})(),
                                   {microbatches()[0]}, Backward::Reference);
  expect_equal(input_gradients, expected.inputs[0]);
  expect_equal({stage->parameters()[0].grad(), stage->parameters()[1].grad()}, expected.parameters);
}

}  // namespace
}  // namespace penstock::testing
