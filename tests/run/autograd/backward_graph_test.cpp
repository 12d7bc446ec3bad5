#include "penstock/run/autograd/backward_graph.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "tests/run/autograd/stages.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

// A product with one input and one weight, recorded.
struct RecordedProduct {
  RecordedProduct() { graph.record(outputs, inputs); }

  at::Tensor weight = torch::randn({4, 5}).requires_grad_();
  Tensors inputs = leaves_of({torch::randn({3, 4})});
  Tensors outputs = {inputs[0].matmul(weight)};
  Tensors seeds = {torch::ones({3, 5})};
  BackwardGraph graph;
  Tensors input_gradients;
};

TEST(BackwardGraph, IsRecordedUntilItsBackwardIsDone) {
  RecordedProduct full;
  EXPECT_TRUE(full.graph.is_recorded());
  full.graph.backward(full.seeds, full.input_gradients);
  EXPECT_FALSE(full.graph.is_recorded());

  RecordedProduct split;
  split.graph.backward_input(split.seeds, split.input_gradients);
  EXPECT_TRUE(split.graph.is_recorded());
  split.graph.backward_weight(WeightGradients::Exact);
  EXPECT_FALSE(split.graph.is_recorded());

  RecordedProduct dropped;
  dropped.graph.reset();
  EXPECT_FALSE(dropped.graph.is_recorded());
}

TEST(BackwardGraph, TellsWhichCallIsMissing) {
  BackwardGraph graph;
  Tensors input_gradients;
  EXPECT_THAT(error_of([&] { graph.backward({}, input_gradients); }), HasSubstr("call record"));
  EXPECT_THAT(error_of([&] { graph.backward_input({}, input_gradients); }),
              HasSubstr("call record"));
  EXPECT_THAT(error_of([&] { graph.backward_weight(WeightGradients::Exact); }),
              HasSubstr("call backward_input first"));

  RecordedProduct product;
  EXPECT_THAT(error_of([&] { product.graph.record(product.outputs, product.inputs); }),
              HasSubstr("call reset"));
  EXPECT_THAT(error_of([&] { product.graph.backward_weight(WeightGradients::Exact); }),
              HasSubstr("call backward_input first"));
  product.graph.backward_input(product.seeds, product.input_gradients);
  EXPECT_THAT(error_of([&] { product.graph.backward_input(product.seeds, input_gradients); }),
              HasSubstr("call backward_weight"));
  EXPECT_THAT(error_of([&] { product.graph.backward(product.seeds, input_gradients); }),
              HasSubstr("call backward_weight"));
}

TEST(BackwardGraph, RefusesSeedsThatDoNotFitTheOutputs) {
  RecordedProduct product;
  const Tensors none;
  const Tensors transposed = {torch::ones({5, 3})};
  const Tensors broadcast = {torch::ones({2, 3, 5})};
  EXPECT_EQ(error_of([&] { product.graph.backward(none, product.input_gradients); }),
            "cannot start a backward with 0 gradients for 1 output; give one per output, undefined "
            "where there is none");
  EXPECT_EQ(error_of([&] { product.graph.backward(transposed, product.input_gradients); }),
            "the gradient of output 0 has shape [5, 3]; expected [3, 5]");
  EXPECT_EQ(error_of([&] { product.graph.backward_input(broadcast, product.input_gradients); }),
            "the gradient of output 0 has shape [2, 3, 5]; expected [3, 5]");
  // Nothing happened yet.
  product.graph.backward(product.seeds, product.input_gradients);
  EXPECT_TRUE(product.input_gradients[0].defined());
}

TEST(BackwardGraph, RefusesAnInputWithAHistory) {
  BackwardGraph graph;
  const Tensors inputs = {torch::ones({2}), torch::ones({2}).requires_grad_() * 2};
  EXPECT_THAT(error_of([&] { graph.record(inputs, inputs); }),
              HasSubstr("input 1 has an autograd history"));
  EXPECT_FALSE(graph.is_recorded());
}

TEST(BackwardGraph, DoesNothingWithoutAGradientToStartFrom) {
  RecordedProduct product;
  const Tensors nothing(1);
  product.graph.backward(nothing, product.input_gradients);
  ASSERT_EQ(product.input_gradients.size(), 1U);
  EXPECT_FALSE(product.input_gradients[0].defined());

  product.graph.record(product.outputs, product.inputs);
  product.graph.backward_input(nothing, product.input_gradients);
  product.graph.backward_weight(WeightGradients::Fused);
  EXPECT_FALSE(product.input_gradients[0].defined());
  EXPECT_FALSE(product.weight.grad().defined());
}

TEST(BackwardGraph, IgnoresOutputsAndInputsThatCannotHaveAGradient) {
  const at::Tensor integers = torch::arange(3);
  const at::Tensor constant = torch::ones({2});
  const Tensors tensors = {at::Tensor(), integers, constant};
  const Tensors seeds = {torch::ones({3}), torch::ones({3}), torch::ones({9})};
  for (const bool is_split : {false, true}) {
    BackwardGraph graph;
    Tensors input_gradients;
    graph.record(tensors, tensors);
    if (is_split) {
      graph.backward_input(seeds, input_gradients);
      graph.backward_weight(WeightGradients::Exact);
    } else {
      graph.backward(seeds, input_gradients);
    }
    expect_equal(input_gradients, Tensors(3));
  }
}

TEST(BackwardGraph, GivesTheGradientOfAnInputWhereverItIsListed) {
  for (const bool is_split : {false, true}) {
    const at::Tensor leaf = torch::ones({3}).requires_grad_();
    const Tensors inputs = {leaf, leaf};
    leaf.mutable_grad() = torch::full({3}, 100.0);  // of some earlier use
    const Tensors outputs = {leaf * 2};
    const Tensors seeds = {torch::ones({3})};
    BackwardGraph graph;
    Tensors input_gradients;
    graph.record(outputs, inputs);
    if (is_split) {
      graph.backward_input(seeds, input_gradients);
    } else {
      graph.backward(seeds, input_gradients);
    }
    expect_equal(input_gradients, {torch::full({3}, 2.0), torch::full({3}, 2.0)});
  }
}

TEST(BackwardGraph, PassesErrorsOfTheEngineOnAndIsEmptyAfterwards) {
  RecordedProduct product;
  {
    const torch::NoGradGuard no_grad;
    product.weight.add_(1);  // the backward needs the old one
  }
  EXPECT_THROW(product.graph.backward(product.seeds, product.input_gradients), c10::Error);
  EXPECT_FALSE(product.graph.is_recorded());
}

TEST(BackwardGraph, DoesNotKeepOutputs) {
  at::Tensor weight = torch::ones({3}).requires_grad_();
  const Tensors inputs = leaves_of({torch::ones({3})});
  Tensors outputs = {inputs[0] * weight};
  const c10::weak_intrusive_ptr<c10::TensorImpl> watched(outputs[0].getIntrusivePtr());
  BackwardGraph graph;
  graph.record(outputs, inputs);
  EXPECT_FALSE(watched.expired());
  outputs.clear();
  EXPECT_TRUE(watched.expired());
}

TEST(BackwardGraph, MovesWithItsMicrobatch) {
  RecordedProduct product;
  BackwardGraph other = std::move(product.graph);
  EXPECT_TRUE(other.is_recorded());
  other.backward(product.seeds, product.input_gradients);
  EXPECT_TRUE(product.weight.grad().defined());
}

TEST(BackwardGraph, RunsInSeveralThreadsAtOnce) {
  const std::vector<Tensors> microbatches(20, {torch::randn({2, 5, 16})});
  std::vector<MakeStage> stages = {stage_of<TransformerBlockStage>(16, 2),
                                   stage_of<TransformerBlockStage>(16, 4)};
  std::vector<Gradients> expected;
  std::vector<std::shared_ptr<Stage>> shared;
  for (const MakeStage& make_stage : stages) {
    expected.push_back(train(*make_stage(), microbatches, Backward::Reference));
    shared.push_back(make_stage());
  }
  std::vector<Gradients> actual(stages.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      threads.emplace_back(
          [&, i] { actual[i] = train(*shared[i], microbatches, Backward::Split); });
    }
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    expect_equal(actual[i].parameters, expected[i].parameters);
  }
}

// Integers in floating point: sums are exact in any order, so only lost additions show.
TEST(BackwardGraph, SharesParametersBetweenThreads) {
  constexpr int kNumThreads = 2;
  constexpr int kNumMicrobatches = 500;
  constexpr std::int64_t kWidth = 64;
  for (const WeightGradients mode : {WeightGradients::Exact, WeightGradients::Fused}) {
    const at::Tensor weight = torch::ones({kWidth, kWidth}).requires_grad_();
    const at::Tensor bias = torch::ones({kWidth}).requires_grad_();
    weight.mutable_grad() = torch::zeros({kWidth, kWidth});
    bias.mutable_grad() = torch::zeros({kWidth});
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kNumThreads; ++i) {
        threads.emplace_back([&] {
          BackwardGraph graph;
          Tensors input_gradients;
          const Tensors inputs = leaves_of({torch::ones({4, kWidth})});
          const Tensors seeds = {torch::ones({4, kWidth})};
          for (int microbatch = 0; microbatch < kNumMicrobatches; ++microbatch) {
            const Tensors outputs = {torch::addmm(bias, inputs[0], weight.t())};
            graph.record(outputs, inputs);
            graph.backward_input(seeds, input_gradients);
            graph.backward_weight(mode);
          }
        });
      }
    }
    const double expected = 4.0 * kNumThreads * kNumMicrobatches;
    expect_equal({weight.grad(), bias.grad()},
                 {torch::full({kWidth, kWidth}, expected), torch::full({kWidth}, expected)});
  }
}

}  // namespace
}  // namespace penstock::testing
