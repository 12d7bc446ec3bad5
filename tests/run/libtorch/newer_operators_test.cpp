#include "penstock/run/libtorch/newer_operators.h"

#include <cmath>
#include <limits>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

// Where libtorch has these operators, the tests run its own: both must do the same.
namespace penstock {
namespace {

torch::Tensor call_operator(const char* name, std::vector<c10::IValue> arguments) {
  define_newer_operators();
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  op.callBoxed(&arguments);
  return arguments.at(0).toTensor();
}

struct AttentionOptions {
  c10::IValue mask{};
  bool is_causal = false;
  c10::IValue scale{};
  bool enable_gqa = false;
  double dropout = 0.0;
};

torch::Tensor call_attention(const torch::Tensor& query, const torch::Tensor& key,
                             const torch::Tensor& value, const AttentionOptions& options = {}) {
  return call_operator("aten::scaled_dot_product_attention",
                       {query, key, value, options.mask, options.dropout, options.is_causal,
                        options.scale, options.enable_gqa});
}

torch::Tensor tensor_of(torch::IntArrayRef sizes, int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::randn(sizes, torch::kDouble);
}

// By the definition, with an additive mask.
torch::Tensor by_hand(const torch::Tensor& query, const torch::Tensor& key,
                      const torch::Tensor& value, const torch::Tensor& mask, double scale) {
  return (query.matmul(key.transpose(-2, -1)) * scale + mask).softmax(-1).matmul(value);
}

class ScaledDotProductAttention : public ::testing::Test {
 protected:
  torch::Tensor query_ = tensor_of({2, 4, 3, 5}, 1);
  torch::Tensor key_ = tensor_of({2, 4, 6, 5}, 2);
  torch::Tensor value_ = tensor_of({2, 4, 6, 5}, 3);
  torch::Tensor none_ = torch::zeros({3, 6}, torch::kDouble);
  torch::Tensor hidden_ =
      torch::full({3, 6}, -std::numeric_limits<double>::infinity(), torch::kDouble);
};

TEST_F(ScaledDotProductAttention, DividesByTheRootOfTheWidth) {
  EXPECT_TRUE(torch::allclose(call_attention(query_, key_, value_),
                              by_hand(query_, key_, value_, none_, 1.0 / std::sqrt(5.0))));
  EXPECT_TRUE(torch::allclose(call_attention(query_, key_, value_, {.scale = 0.25}),
                              by_hand(query_, key_, value_, none_, 0.25)));
}

TEST_F(ScaledDotProductAttention, LooksBackOnlyIfCausal) {
  EXPECT_TRUE(
      torch::allclose(call_attention(query_, key_, value_, {.is_causal = true}),
                      by_hand(query_, key_, value_, hidden_.triu(1), 1.0 / std::sqrt(5.0))));
}

TEST_F(ScaledDotProductAttention, TakesMasksOfBothKinds) {
  const torch::Tensor expected =
      by_hand(query_, key_, value_, torch::where(torch::eye(3, 6).to(torch::kBool), hidden_, none_),
              1.0 / std::sqrt(5.0));
  const torch::Tensor visible = torch::eye(3, 6).to(torch::kBool).logical_not();
  EXPECT_TRUE(torch::allclose(call_attention(query_, key_, value_, {.mask = visible}), expected));
  const torch::Tensor added = torch::where(visible, none_, hidden_);
  EXPECT_TRUE(torch::allclose(call_attention(query_, key_, value_, {.mask = added}), expected));
}

TEST_F(ScaledDotProductAttention, GivesZeroToAQueryWithoutKeys) {
  torch::Tensor visible = torch::ones({3, 6}, torch::kBool);
  visible[1].fill_(false);
  query_.set_requires_grad(true);
  const torch::Tensor output = call_attention(query_, key_, value_, {.mask = visible});
  output.sum().backward();
  EXPECT_TRUE(torch::equal(output.select(2, 1), torch::zeros({2, 4, 5}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(query_.grad().select(2, 1), torch::zeros({2, 4, 5}, torch::kDouble)));
  EXPECT_TRUE(query_.grad().isfinite().all().item<bool>());
}

TEST_F(ScaledDotProductAttention, SharesHeadsOfKeysAmongGroups) {
  const torch::Tensor key = key_.narrow(1, 0, 2);
  const torch::Tensor value = value_.narrow(1, 0, 2);
  EXPECT_TRUE(torch::allclose(
      call_attention(query_, key, value, {.enable_gqa = true}),
      call_attention(query_, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1))));
}

TEST_F(ScaledDotProductAttention, DropsWeights) {
  const torch::Tensor ones = torch::ones({2, 4, 6, 5}, torch::kDouble);
  EXPECT_TRUE(torch::equal(call_attention(query_, key_, ones, {.dropout = 1.0}),
                           torch::zeros({2, 4, 3, 5}, torch::kDouble)));
}

TEST_F(ScaledDotProductAttention, RefusesAMaskThatIsAlsoCausal) {
  try {
    call_attention(query_, key_, value_, {.mask = none_, .is_causal = true});
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("attn_mask"),
                                               ::testing::HasSubstr("is_causal")));
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  const torch::Tensor input = tensor_of({4, 3, 5}, 4);
  const torch::Tensor weight = tensor_of({3, 5}, 5);
  const torch::Tensor norm = (input.square().mean({1, 2}, true) + 0.5).rsqrt();
  EXPECT_TRUE(torch::allclose(
      call_operator("aten::rms_norm", {input, std::vector<std::int64_t>{3, 5}, weight, 0.5}),
      input * norm * weight));
}

TEST(RmsNorm, TakesTheSmallestStepOfTheTypeByDefault) {
  const torch::Tensor input = torch::full({1, 4}, 1e-3F);
  const float expected = 1e-3F / std::sqrt(1e-6F + std::numeric_limits<float>::epsilon());
  EXPECT_TRUE(torch::allclose(call_operator("aten::rms_norm", {input, std::vector<std::int64_t>{4},
                                                               c10::IValue(), c10::IValue()}),
                              torch::full({1, 4}, expected)));
}

}  // namespace
}  // namespace penstock
