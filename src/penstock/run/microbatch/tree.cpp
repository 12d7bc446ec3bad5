#include "penstock/run/microbatch/tree.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

bool same_kind(const c10::IValue& left, const c10::IValue& right) {
  if (left.isTensor() || right.isTensor()) return left.isTensor() && right.isTensor();
  if (is_branch(left) || is_branch(right)) {
    return left.isTuple() == right.isTuple() && left.isList() == right.isList() &&
           left.isGenericDict() == right.isGenericDict();
  }
  return left.type()->kind() == right.type()->kind();
}

// For each child of `branch`, whether its replacement is of the same kind.
std::vector<bool> kept_kinds(const c10::IValue& branch, const std::vector<c10::IValue>& children) {
  std::vector<bool> kept;
  for_each_child(branch, [&](const c10::IValue& old) {
    PENSTOCK_ASSERT(kept.size() < children.size(), "every child has a replacement");
    kept.push_back(same_kind(old, children[kept.size()]));
  });
  PENSTOCK_ASSERT(kept.size() == children.size(), "every replacement has a child");
  return kept;
}

bool all_of(const std::vector<bool>& values) {
  return std::find(values.begin(), values.end(), false) == values.end();
}

c10::TypePtr any_unless(bool keep, c10::TypePtr declared) {
  return keep ? std::move(declared) : c10::TypePtr(c10::AnyType::get());
}

// The type of a named tuple, null for a plain one. Asks a copy without elements: a plain tuple
// works its type out from them on first use, which writes to it, and fails for undefined tensors.
c10::TupleTypePtr named_type(const c10::ivalue::Tuple& tuple) {
  c10::ivalue::Tuple probe = tuple;
  probe.setElements(std::vector<c10::IValue>());
  c10::TupleTypePtr type = probe.type();
  return type->schema() ? type : nullptr;
}

c10::IValue tuple_like(const c10::IValue& branch, std::vector<c10::IValue> children) {
  c10::TupleTypePtr type = named_type(branch.toTupleRef());
  if (!type) return c10::ivalue::Tuple::create(std::move(children));
  const std::vector<bool> kept = kept_kinds(branch, children);
  if (!all_of(kept)) {
    // The fields of a named tuple cannot be Any.
    std::vector<std::string> names;
    std::vector<c10::TypePtr> types = type->elements().vec();
    for (std::size_t field = 0; field < children.size(); ++field) {
      names.push_back(type->schema()->arguments()[field].name());
      if (kept[field]) continue;
      types[field] = children[field].isTensor() ? c10::TypePtr(c10::TensorType::get())
                                                : children[field].type();
    }
    type = c10::TupleType::createNamed(type->name(), names, types);
  }
  return c10::ivalue::Tuple::createNamed(std::move(children), c10::TypePtr(type));
}

c10::IValue list_like(const c10::IValue& branch, std::vector<c10::IValue> children) {
  const bool keep = all_of(kept_kinds(branch, children));
  c10::impl::GenericList list(any_unless(keep, branch.toList().elementType()));
  list.reserve(children.size());
  for (c10::IValue& child : children) list.push_back(std::move(child));
  return list;
}

c10::IValue dict_like(const c10::IValue& branch, std::vector<c10::IValue> children) {
  const bool keep = all_of(kept_kinds(branch, children));
  const c10::impl::GenericDict old = branch.toGenericDict();
  c10::impl::GenericDict dict(old.keyType(), any_unless(keep, old.valueType()));
  dict.reserve(children.size());
  std::size_t next = 0;
  for (const auto& entry : old) dict.insert(entry.key(), std::move(children[next++]));
  return dict;
}

// describe() stops soon after this many bytes.
constexpr std::size_t kLongestDescription = 300;
constexpr std::size_t kMostChildrenShown = 8;

std::string describe_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  std::string type = c10::toString(tensor.scalar_type());
  for (char& letter : type) letter = static_cast<char>(std::tolower(letter));
  std::string text = fmt::format("{} tensor [{}]", type, fmt::join(tensor.sizes(), ", "));
  if (!tensor.device().is_cpu()) text += " on " + tensor.device().str();
  if (tensor.requires_grad()) text += " requires grad";
  return text;
}

// With a point even if whole, to tell it from an integer.
std::string describe_number(double number) {
  const std::string text = fmt::format("{}", number);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

std::string describe_leaf(const c10::IValue& leaf) {
  if (leaf.isTensor()) return describe_tensor(leaf.toTensor());
  if (leaf.isNone()) return "None";
  if (leaf.isBool()) return leaf.toBool() ? "true" : "false";
  if (leaf.isInt()) return fmt::format("{}", leaf.toInt());
  if (leaf.isDouble()) return describe_number(leaf.toDouble());
  if (leaf.isString()) return quote(leaf.toStringRef());
  if (leaf.isDevice()) return "device " + leaf.toDevice().str();
  return "<" + leaf.tagKind() + ">";
}

void append_description(const c10::IValue& value, std::string& text) {
  if (!is_branch(value)) {
    text += describe_leaf(value);
    return;
  }
  std::vector<c10::IValue> keys;
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) keys.push_back(entry.key());
  }
  text += value.isTuple() ? "(" : value.isList() ? "[" : "{";
  std::size_t count = 0;
  for_each_child(value, [&](const c10::IValue& child) {
    const std::size_t index = count++;
    if (index >= kMostChildrenShown || text.size() > kLongestDescription) return;
    if (index > 0) text += ", ";
    if (!keys.empty()) text += describe_leaf(keys[index]) + ": ";
    append_description(child, text);
  });
  if (count > kMostChildrenShown) text += fmt::format(", ... {} more", count - kMostChildrenShown);
  if (value.isTuple() && count == 1) text += ",";
  text += value.isTuple() ? ")" : value.isList() ? "]" : "}";
}

bool equal_tensors(const at::Tensor& left, const at::Tensor& right) {
  if (left.is_same(right)) return true;
  if (!left.defined() || !right.defined()) return false;
  if (left.scalar_type() != right.scalar_type() || left.device() != right.device() ||
      left.layout() != right.layout() || left.sizes() != right.sizes()) {
    return false;
  }
  if (at::equal(left, right)) return true;
  const bool may_have_nan = left.layout() == at::kStrided && !left.is_meta() &&
                            (left.is_floating_point() || left.is_complex());
  return may_have_nan && at::allclose(left, right, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
}

bool equal_dicts(const c10::impl::GenericDict& left, const c10::impl::GenericDict& right) {
  if (left.size() != right.size()) return false;
  return std::all_of(left.begin(), left.end(), [&](const auto& entry) {
    const auto found = right.find(entry.key());
    return found != right.end() && equal_values(entry.value(), found->value());
  });
}

bool equal_sequences(const c10::IValue& left, const c10::IValue& right) {
  std::vector<const c10::IValue*> others;
  for_each_child(right, [&](const c10::IValue& child) { others.push_back(&child); });
  std::size_t index = 0;
  bool equal = true;
  for_each_child(left, [&](const c10::IValue& child) {
    equal = equal && index < others.size() && equal_values(child, *others[index]);
    ++index;
  });
  return equal && index == others.size();
}

}  // namespace

c10::IValue with_children(const c10::IValue& branch, std::vector<c10::IValue> children) {
  if (branch.isTuple()) return tuple_like(branch, std::move(children));
  if (branch.isList()) return list_like(branch, std::move(children));
  PENSTOCK_ASSERT(branch.isGenericDict(), "only branches have children");
  return dict_like(branch, std::move(children));
}

std::string describe(const c10::IValue& value) {
  std::string text;
  append_description(value, text);
  if (text.size() > kLongestDescription) text = text.substr(0, kLongestDescription) + "...";
  return text;
}

bool equal_values(const c10::IValue& left, const c10::IValue& right) {
  if (!same_kind(left, right)) return false;
  if (left.isTensor()) return equal_tensors(left.toTensor(), right.toTensor());
  if (left.isGenericDict()) return equal_dicts(left.toGenericDict(), right.toGenericDict());
  if (is_branch(left)) return equal_sequences(left, right);
  if (left.isDouble() && std::isnan(left.toDouble())) return std::isnan(right.toDouble());
  return left == right;
}

}  // namespace penstock
