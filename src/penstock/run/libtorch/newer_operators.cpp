#include "penstock/run/libtorch/newer_operators.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace penstock {
namespace {

// Scores of keys that a query may look at; -inf for the others.
at::Tensor masked(const at::Tensor& scores, const at::Tensor& mask) {
  if (mask.scalar_type() != at::kBool) return scores + mask;
  return scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

// A query without any key gets weights of zero, and no gradient, where softmax would give NaN.
at::Tensor softmax_or_zero(const at::Tensor& scores) {
  const at::Tensor has_no_key =
      scores.eq(-std::numeric_limits<double>::infinity()).all(-1, /*keepdim=*/true);
  return scores.masked_fill(has_no_key, 0.0).softmax(-1).masked_fill(has_no_key, 0.0);
}

at::Tensor scaled_dot_product_attention(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value,
                                        const c10::optional<at::Tensor>& attn_mask,
                                        double dropout_p, bool is_causal,
                                        c10::optional<double> scale, bool enable_gqa) {
  const bool has_mask = attn_mask.has_value() && attn_mask->defined();
  // An error of libtorch's kind, as from its own operators.
  TORCH_CHECK(!(has_mask && is_causal),
              "scaled_dot_product_attention: attn_mask is given and is_causal is true; give one");
  at::Tensor keys = key;
  at::Tensor values = value;
  if (enable_gqa) {  // several heads of the query share one of the keys
    keys = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    values = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor scores = (query * factor).matmul(keys.transpose(-2, -1));
  if (is_causal) {
    scores = masked(scores, at::ones({scores.size(-2), scores.size(-1)},
                                     scores.options().dtype(at::kBool).requires_grad(false))
                                .tril());
  } else if (has_mask) {
    scores = masked(scores, *attn_mask);
  }
  at::Tensor weights = has_mask ? softmax_or_zero(scores) : scores.softmax(-1);
  if (dropout_p > 0.0) weights = at::dropout(weights, dropout_p, /*train=*/true);
  return weights.matmul(values);
}

at::Tensor rms_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                    const c10::optional<at::Tensor>& weight, c10::optional<double> eps) {
  const at::Tensor wide = input.to(at::toOpMathType(input.scalar_type()));
  const double smallest = wide.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                            : std::numeric_limits<float>::epsilon();
  std::vector<std::int64_t> dimensions;
  for (std::size_t from_end = normalized_shape.size(); from_end > 0; --from_end) {
    dimensions.push_back(-static_cast<std::int64_t>(from_end));
  }
  at::Tensor result =
      wide * (wide.square().mean(dimensions, /*keepdim=*/true) + eps.value_or(smallest)).rsqrt();
  if (weight.has_value() && weight->defined()) result = result * *weight;
  return result.to(input.scalar_type());
}

bool is_missing(const char* name) {
  return !c10::Dispatcher::singleton().findOp({std::string("aten::") + name, ""}).has_value();
}

// The schemas are those of PyTorch 2.14; earlier files give fewer arguments.
torch::Library newer_operators() {
  torch::Library library(torch::Library::FRAGMENT, "aten", c10::nullopt, __FILE__, __LINE__);
  if (is_missing("scaled_dot_product_attention")) {
    library.def(
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
        "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, "
        "float? scale=None, bool enable_gqa=False) -> Tensor",
        scaled_dot_product_attention);
  }
  if (is_missing("rms_norm")) {
    library.def(
        "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) "
        "-> Tensor",
        rms_norm);
  }
  return library;
}

}  // namespace

void define_newer_operators() {
  static const torch::Library library = newer_operators();
}

}  // namespace penstock
