#include "penstock/run/autograd/internal/fused_weight_gradient.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <typeinfo>

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include "penstock/run/libtorch/compat.h"

namespace penstock {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::generated::AddmmBackward0;
using torch::autograd::generated::MmBackward0;
using torch::autograd::generated::TBackward0;

// The mutex that an accumulator holds while it adds: two threads may share a parameter.
struct AccumulatorLock : AccumulateGrad {
  static std::mutex& mutex_of(AccumulateGrad& accumulator) {
    return accumulator.*(&AccumulatorLock::mutex_);
  }
};

bool is_plain_matrix(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.dim() == 2 &&
         tensor.is_floating_point();
}

template <class Type>
bool leads_to(const Edge& edge) {
  if (!edge.is_valid()) return false;
  const Node& node = *edge.function;
  return typeid(node) == typeid(Type);
}

// The accumulator of a parameter behind `edge`, if we may add to its gradient ourselves.
AccumulateGrad* plain_accumulator(const Edge& edge, const at::Tensor& gradient) {
  if (!leads_to<AccumulateGrad>(edge)) return nullptr;
  auto& accumulator = static_cast<AccumulateGrad&>(*edge.function);
  if (has_accumulation_hooks(accumulator)) return nullptr;
  const at::Tensor& sum = accumulator.variable.grad();
  const bool fits = sum.defined() && sum.layout() == at::kStrided && !sum.requires_grad() &&
                    sum.dtype() == gradient.dtype() && sum.device() == gradient.device();
  return fits ? &accumulator : nullptr;
}

// The same for a weight that went into the product transposed.
AccumulateGrad* plain_transposed_accumulator(const Edge& edge, const at::Tensor& gradient) {
  if (!leads_to<TBackward0>(edge)) return nullptr;
  Node& transpose = *edge.function;
  if (has_gradient_hooks(transpose) || !transpose.post_hooks().empty()) return nullptr;
  return plain_accumulator(transpose.next_edge(0), gradient);
}

// output = scale * input weight^T, so the gradient of the weight is scale * gradient^T input.
void add_to_weight(Edge& edge, const at::Tensor& gradient,
                   const torch::autograd::SavedVariable& input, const at::Scalar& scale) {
  AccumulateGrad* accumulator = plain_transposed_accumulator(edge, gradient);
  if (accumulator == nullptr) return;
  const at::Tensor saved = input.unpack();
  if (!is_plain_matrix(saved) || saved.dtype() != gradient.dtype()) return;
  {
    const std::lock_guard lock(AccumulatorLock::mutex_of(*accumulator));
    accumulator->variable.mutable_grad().addmm_(gradient.t(), saved, /*beta=*/1, scale);
  }
  edge = Edge();
}

void add_to_bias(Edge& edge, const at::Tensor& gradient) {
  AccumulateGrad* accumulator = plain_accumulator(edge, gradient);
  if (accumulator == nullptr) return;
  const at::Tensor sum = at::sum_to(gradient, accumulator->variable.sizes());
  {
    const std::lock_guard lock(AccumulatorLock::mutex_of(*accumulator));
    accumulator->variable.mutable_grad() += sum;
  }
  edge = Edge();
}

}  // namespace

bool add_fused_weight_gradient(Node& node, const at::Tensor& gradient) {
  const bool is_addmm = typeid(node) == typeid(AddmmBackward0);
  const bool is_mm = typeid(node) == typeid(MmBackward0);
  if (!(is_addmm || is_mm) || !node.post_hooks().empty() || !is_plain_matrix(gradient)) {
    return false;
  }
  const at::NoGradGuard no_grad;
  torch::autograd::edge_list& edges = node.next_edges();
  if (is_addmm) {
    const auto& addmm = static_cast<const AddmmBackward0&>(node);
    add_to_weight(edges[2], gradient, addmm.mat1_, addmm.alpha);
    if (addmm.beta.equal(1)) add_to_bias(edges[0], gradient);
  } else {
    add_to_weight(edges[1], gradient, static_cast<const MmBackward0&>(node).self_, 1);
  }
  return std::none_of(edges.begin(), edges.end(), [](const Edge& edge) { return edge.is_valid(); });
}

}  // namespace penstock
