#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace penstock {

// A tree is a c10::IValue. Its branches are tuples (named ones too), lists and dicts; everything
// else is a leaf, None and custom objects included. Walks go in index order, and through dicts in
// insertion order. Several threads may walk one tree, as long as none changes it.

inline bool is_branch(const c10::IValue& value) {
  return value.isTuple() || value.isList() || value.isGenericDict();
}

// visit(child) for every direct child of `value`; a leaf has none. The references handed out live
// as long as the tree does.
template <typename Visit>
void for_each_child(const c10::IValue& value, Visit&& visit) {
  if (value.isTuple()) {
    for (const c10::IValue& child : value.toTupleRef().elements()) visit(child);
  } else if (value.isList()) {
    for (const c10::IValue& child : value.toListRef()) visit(child);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) visit(entry.value());
  }
}

template <typename Visit>
void for_each_leaf(const c10::IValue& value, Visit&& visit) {
  if (!is_branch(value)) {
    visit(value);
    return;
  }
  for_each_child(value, [&](const c10::IValue& child) { for_each_leaf(child, visit); });
}

// visit(tensor) for every defined tensor.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  for_each_leaf(value, [&](const c10::IValue& leaf) {
    if (!leaf.isTensor()) return;
    const at::Tensor& tensor = leaf.toTensor();
    if (tensor.defined()) visit(tensor);
  });
}

// A branch like `branch` (kind, keys, field names, declared types) around other children, one for
// each of its own. Where a child is of another kind than before, the declared type changes: to Any
// for lists and dicts, to that of the child for a named tuple.
[[nodiscard]] c10::IValue with_children(const c10::IValue& branch,
                                        std::vector<c10::IValue> children);

// The tree with map(leaf) in place of every leaf.
template <typename Map>
[[nodiscard]] c10::IValue map_leaves(const c10::IValue& value, Map&& map) {
  if (!is_branch(value)) return map(value);
  std::vector<c10::IValue> children;
  for_each_child(value,
                 [&](const c10::IValue& child) { children.push_back(map_leaves(child, map)); });
  return with_children(value, std::move(children));
}

// The tree with map(tensor) in place of every defined tensor.
template <typename Map>
[[nodiscard]] c10::IValue map_tensors(const c10::IValue& value, Map&& map) {
  return map_leaves(value, [&](const c10::IValue& leaf) -> c10::IValue {
    if (!leaf.isTensor()) return leaf;
    const at::Tensor& tensor = leaf.toTensor();
    return tensor.defined() ? c10::IValue(map(tensor)) : leaf;
  });
}

// One line for error messages, shortened when long:
//   (float tensor [2, 3] requires grad, {"mask": bool tensor [4], "k": 3}, None)
std::string describe(const c10::IValue& value);

// Tensors: same type, device, shape and elements; NaN equals NaN, also as a number. Branches: same
// kind, with equal children; dicts by key, in any order. Declared types and field names do not
// count. Other objects: the same one.
bool equal_values(const c10::IValue& left, const c10::IValue& right);

}  // namespace penstock
