#include "penstock/run/microbatch/merge.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/microbatch/internal/spec_rule.h"
#include "penstock/run/microbatch/internal/tree_path.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

// The values at one place of the output, one per microbatch.
using Parts = std::vector<const c10::IValue*>;

[[noreturn]] void reject_part(const Parts& parts, std::size_t microbatch, const TreePath& path,
                              const std::string& expected) {
  throw ArgumentError(fmt::format("{}: microbatch {} returned {}, microbatch 0 returned {}; {}",
                                  path.text(), microbatch, describe(*parts[microbatch]),
                                  describe(*parts[0]), expected));
}

// Whether both are concatenated to one tensor: equal in all dimensions but `dim`.
bool fit_together(const at::Tensor& left, const at::Tensor& right, std::int64_t dim) {
  if (left.dim() != right.dim()) return false;
  for (std::int64_t i = 0; i < left.dim(); ++i) {
    if (i != dim && left.size(i) != right.size(i)) return false;
  }
  return true;
}

c10::IValue concatenate(const Parts& parts, std::int64_t wanted_dim, const TreePath& path) {
  const std::int64_t dim = require_dimension(*parts[0], wanted_dim, "concatenate", path);
  if (parts.size() == 1) return *parts[0];
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_defined_tensor(*parts[i]) ||
        !fit_together(parts[0]->toTensor(), parts[i]->toTensor(), dim)) {
      reject_part(
          parts, i, path,
          fmt::format("to concatenate along dimension {}, all other dimensions must agree", dim));
    }
    tensors.push_back(parts[i]->toTensor());
  }
  return at::cat(tensors, dim);
}

// For tensors without dimensions.
c10::IValue stack(const Parts& parts, const TreePath& path) {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_defined_tensor(*parts[i]) || parts[i]->toTensor().dim() != 0) {
      reject_part(parts, i, path, "to make one entry of each, all must be such tensors");
    }
    tensors.push_back(parts[i]->toTensor());
  }
  return at::stack(tensors);
}

c10::IValue require_same(const Parts& parts, const SpecRule& rule, const TreePath& path) {
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (equal_values(*parts[0], *parts[i])) continue;
    reject_part(parts, i, path,
                rule.spec == nullptr
                    ? "they differ and cannot be concatenated; give an output spec with a reducer, "
                      "such as ChunkSpec::sum()"
                    : "they differ, but a replicated value is the same in every microbatch");
  }
  return *parts[0];
}

c10::IValue fold(const Parts& parts, const ChunkSpec::Reduction& reduction, const TreePath& path) {
  // A copy, so that a reducer may work in place.
  c10::IValue result =
      map_tensors(reduction.initial, [](const at::Tensor& tensor) { return tensor.clone(); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    try {
      result = reduction.combine(std::move(result), *parts[i]);
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{}, microbatch {}: {}", path.text(), i, error.what()));
    }
  }
  return result;
}

c10::IValue merge_leaf(const Parts& parts, const SpecRule& rule, const TreePath& path) {
  require_leaf_rule(*parts[0], rule, path);
  if (const auto* reduce = rule.as<ChunkSpec::Reduce>()) {
    return fold(parts, *reduce->reduction, path);
  }
  if (const auto* split = rule.as<ChunkSpec::Split>()) {
    const bool is_other_leaf = rule.is_inherited && !is_defined_tensor(*parts[0]);
    return is_other_leaf ? require_same(parts, rule, path) : concatenate(parts, split->dim, path);
  }
  if (rule.spec != nullptr || !is_defined_tensor(*parts[0])) return require_same(parts, rule, path);
  return is_split_by_default(*parts[0]) ? concatenate(parts, 0, path) : stack(parts, path);
}

// For each child of `first`, its value in `other`; none if the two differ in structure.
std::optional<Parts> matching_children(const c10::IValue& first, const c10::IValue& other) {
  Parts children;
  if (first.isGenericDict() && other.isGenericDict()) {
    const c10::impl::GenericDict values = other.toGenericDict();
    for (const auto& entry : first.toGenericDict()) {
      const auto found = values.find(entry.key());
      if (found == values.end()) return std::nullopt;
      children.push_back(&found->value());
    }
    return children.size() == values.size() ? std::optional(children) : std::nullopt;
  }
  const bool are_alike = (first.isTuple() && other.isTuple()) || (first.isList() && other.isList());
  if (!are_alike) return std::nullopt;
  for_each_child(other, [&](const c10::IValue& child) { children.push_back(&child); });
  return children;
}

c10::IValue merge(const Parts& parts, const SpecRule& rule, const TreePath& path) {
  const c10::IValue& first = *parts[0];
  const auto require_structure = [&](std::size_t microbatch, bool is_same) {
    if (is_same) return;
    reject_part(parts, microbatch, path, "all microbatches must return the same structure");
  };
  if (!is_branch(first)) {
    for (std::size_t i = 1; i < parts.size(); ++i) require_structure(i, !is_branch(*parts[i]));
    return merge_leaf(parts, rule, path);
  }
  const std::vector<SpecRule> rules = rules_of_children(first, rule, path);
  std::vector<Parts> parts_of_children(rules.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::optional<Parts> children = matching_children(first, *parts[i]);
    require_structure(i, children && children->size() == rules.size());
    for (std::size_t child = 0; child < rules.size(); ++child) {
      parts_of_children[child].push_back((*children)[child]);
    }
  }
  std::vector<c10::IValue> merged;
  for (std::size_t child = 0; child < rules.size(); ++child) {
    merged.push_back(merge(parts_of_children[child], rules[child], TreePath(path, first, child)));
  }
  return with_children(first, std::move(merged));
}

}  // namespace

c10::IValue merge_microbatches(std::span<const c10::IValue> values,
                               const std::optional<ChunkSpec>& spec) {
  if (values.empty())
    throw ArgumentError("there are no microbatches to merge; expected at least 1");
  Parts parts;
  for (const c10::IValue& value : values) parts.push_back(&value);
  return merge(parts, {.spec = spec ? &*spec : nullptr}, TreePath("output"));
}

}  // namespace penstock
