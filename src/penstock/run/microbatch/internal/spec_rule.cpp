#include "penstock/run/microbatch/internal/spec_rule.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

[[noreturn]] void reject_structure(const c10::IValue& value, const SpecRule& rule,
                                   const TreePath& path) {
  const auto* sequence = rule.as<ChunkSpec::Sequence>();
  throw ArgumentError(fmt::format(
      "{}: found {}, but the spec {} is for {}; give a spec of the same structure, or one "
      "such as split(0) for all of it",
      path.text(), describe(value), to_string(*rule.spec),
      sequence != nullptr ? fmt::format("a tuple or list of {}", sequence->items.size())
                          : std::string("a dict")));
}

std::vector<SpecRule> rules_of_elements(const c10::IValue& branch, const SpecRule& rule,
                                        const TreePath& path) {
  const auto& items = rule.as<ChunkSpec::Sequence>()->items;
  std::size_t count = 0;
  for_each_child(branch, [&](const c10::IValue& /*child*/) { ++count; });
  if (branch.isGenericDict() || count != items.size()) reject_structure(branch, rule, path);
  std::vector<SpecRule> rules;
  rules.reserve(items.size());
  for (const ChunkSpec& item : items) rules.push_back({.spec = &item});
  return rules;
}

const ChunkSpec* find_entry(const ChunkSpec::Dict& dict, const c10::IValue& key) {
  if (!key.isString()) return nullptr;
  const auto entry = std::ranges::lower_bound(
      dict.entries, key.toStringRef(), {},
      [](const auto& candidate) -> const std::string& { return candidate.first; });
  const bool found = entry != dict.entries.end() && entry->first == key.toStringRef();
  return found ? &entry->second : nullptr;
}

std::vector<SpecRule> rules_of_values(const c10::IValue& branch, const SpecRule& rule,
                                      const TreePath& path) {
  if (!branch.isGenericDict()) reject_structure(branch, rule, path);
  const auto& dict = *rule.as<ChunkSpec::Dict>();
  const c10::impl::GenericDict values = branch.toGenericDict();
  for (const auto& [key, spec] : dict.entries) {
    if (values.contains(key)) continue;
    throw ArgumentError(fmt::format("{}: the spec names key {}, which is not in {}", path.text(),
                                    quote(key), describe(branch)));
  }
  std::vector<SpecRule> rules;
  for (const auto& entry : values) {
    const ChunkSpec* spec = find_entry(dict, entry.key());
    if (spec == nullptr) {
      throw ArgumentError(fmt::format("{}: key {} is not in the spec {}; {}", path.text(),
                                      describe(entry.key()), to_string(*rule.spec),
                                      entry.key().isString()
                                          ? "name every key"
                                          : "specs name keys that are strings, so give one spec "
                                            "such as split(0) for all of it"));
    }
    rules.push_back({.spec = spec});
  }
  return rules;
}

}  // namespace

std::vector<SpecRule> rules_of_children(const c10::IValue& branch, const SpecRule& rule,
                                        const TreePath& path) {
  if (rule.as<ChunkSpec::Sequence>() != nullptr) return rules_of_elements(branch, rule, path);
  if (rule.as<ChunkSpec::Dict>() != nullptr) return rules_of_values(branch, rule, path);
  std::vector<SpecRule> rules;
  for_each_child(branch, [&](const c10::IValue& /*child*/) {
    rules.push_back({.spec = rule.spec, .is_inherited = true});
  });
  return rules;
}

void require_leaf_rule(const c10::IValue& leaf, const SpecRule& rule, const TreePath& path) {
  if (rule.as<ChunkSpec::Sequence>() != nullptr || rule.as<ChunkSpec::Dict>() != nullptr) {
    reject_structure(leaf, rule, path);
  }
}

bool is_defined_tensor(const c10::IValue& leaf) {
  return leaf.isTensor() && leaf.toTensor().defined();
}

bool is_split_by_default(const c10::IValue& leaf) {
  return is_defined_tensor(leaf) && leaf.toTensor().dim() > 0;
}

std::int64_t require_dimension(const c10::IValue& leaf, std::int64_t dim, std::string_view verb,
                               const TreePath& path) {
  const bool is_tensor = is_defined_tensor(leaf);
  const std::int64_t num_dims = is_tensor ? leaf.toTensor().dim() : 0;
  if (dim >= -num_dims && dim < num_dims) return dim < 0 ? dim + num_dims : dim;
  throw ArgumentError(fmt::format(
      "{}: cannot {} {} along dimension {}; {}", path.text(), verb, describe(leaf), dim,
      !is_tensor      ? "expected a tensor (or the spec replicate)"
      : num_dims == 0 ? "it has no dimensions (use the spec replicate)"
                      : fmt::format("its dimensions are 0 to {}, or {} to -1 from the end",
                                    num_dims - 1, -num_dims)));
}

}  // namespace penstock
