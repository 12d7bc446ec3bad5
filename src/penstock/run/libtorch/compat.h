#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

// Where libtorch 1.13 and 2.x differ. The rest of Penstock is written once for both.
namespace penstock {

// Owns an autograd node: std::shared_ptr in 1.13, c10::intrusive_ptr in late 2.x.
using NodePtr = decltype(torch::autograd::Edge::function);

template <class Node, class... Arguments>
NodePtr make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

// 1.13 keeps the hooks of tensors with those of their node, and those of leaves with the leaf; 2.x
// has a list of its own for them, and calls it even where the engine only captures a gradient.
template <class Node>
concept HasTensorHooks = requires(Node& node) {
  node.tensor_pre_hooks();
  node.retains_grad_hooks();
};

// Whether user code sees, and may change, the gradients that arrive at `node`.
template <class Node>
bool has_gradient_hooks(Node& node) {
  if constexpr (HasTensorHooks<Node>) {
    if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty()) return true;
  }
  return !node.pre_hooks().empty();
}

template <class Node>
void clear_gradient_hooks(Node& node) {
  if constexpr (HasTensorHooks<Node>) {
    node.tensor_pre_hooks().clear();
    node.retains_grad_hooks().clear();
  }
  node.pre_hooks().clear();
}

// Whether user code takes part when `accumulator`, the node of a leaf, adds to the leaf's gradient.
template <class AccumulateGrad>
bool has_accumulation_hooks(AccumulateGrad& accumulator) {
  if constexpr (requires { accumulator.tensor_post_acc_grad_hooks(); }) {
    if (accumulator.tensor_post_acc_grad_hooks()) return true;
  }
  return has_gradient_hooks(accumulator) || !accumulator.post_hooks().empty() ||
         !torch::autograd::impl::hooks(accumulator.variable).empty();
}

// What the hooks of `leaf` make of `gradient`, which the engine captured in front of the leaf.
template <class Node = torch::autograd::Node>
at::Tensor call_captured_leaf_hooks(const at::Tensor& leaf, at::Tensor gradient) {
  if constexpr (!HasTensorHooks<Node>) {
    for (const auto& hook : torch::autograd::impl::hooks(leaf)) gradient = (*hook)({gradient})[0];
  }
  return gradient;
}

// Takes the memory away from the storage of `tensor`, and with it from all tensors that share the
// storage, such as those that an autograd graph has saved. They keep shape and version.
inline void drop_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(static_cast<std::size_t>(0));
}

// Gives the storage of `tensor` a part of the memory of `lender`, which lives as long as anybody
// has such a part.
inline void lend_memory(const at::Tensor& lender, std::size_t offset_bytes, std::size_t num_bytes,
                        const at::Tensor& tensor) {
  auto* holder = new c10::Storage(lender.storage());
  at::DataPtr part(
      static_cast<std::byte*>(lender.data_ptr()) + offset_bytes, holder,
      [](void* storage) { delete static_cast<c10::Storage*>(storage); }, lender.device());
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(part));
  storage->set_nbytes(num_bytes);
}

template <class Reporter, class Total>
Total total_of(void (Reporter::*)(void*, std::int64_t, Total, Total, c10::Device));

// The type of the totals that a c10::MemoryReportingInfoBase is told: signed in 1.13, not in 2.x.
using MemoryTotal = decltype(total_of(&c10::MemoryReportingInfoBase::reportMemoryUsage));

}  // namespace penstock
