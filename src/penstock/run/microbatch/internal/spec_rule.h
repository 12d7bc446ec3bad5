#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/chunk_spec.h"
#include "penstock/run/microbatch/internal/tree_path.h"

namespace penstock {

// The spec that holds at one place of a tree; none means the default.
struct SpecRule {
  const ChunkSpec* spec = nullptr;
  // Given for a branch further up, and not for this very place.
  bool is_inherited = false;

  // The node of `spec` if that is a `Kind`, else null.
  template <typename Kind>
  const Kind* as() const {
    return spec == nullptr ? nullptr : std::get_if<Kind>(&spec->node());
  }
};

// The rule of each child of `branch`. Throws ArgumentError when the spec is for a branch of another
// kind, length or set of keys.
std::vector<SpecRule> rules_of_children(const c10::IValue& branch, const SpecRule& rule,
                                        const TreePath& path);

// Throws ArgumentError when the rule at a leaf is the spec of a branch.
void require_leaf_rule(const c10::IValue& leaf, const SpecRule& rule, const TreePath& path);

// A tensor that has a shape. An undefined one is a leaf like None.
bool is_defined_tensor(const c10::IValue& leaf);

// Whether a tensor is split and concatenated when nothing else is said: it has a dimension 0.
bool is_split_by_default(const c10::IValue& leaf);

// `dim`, counted from the front. Throws ArgumentError when `leaf` is no tensor that has it; `verb`
// says what was to be done: "split".
std::int64_t require_dimension(const c10::IValue& leaf, std::int64_t dim, std::string_view verb,
                               const TreePath& path);

}  // namespace penstock
