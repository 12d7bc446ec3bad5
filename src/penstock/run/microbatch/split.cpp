#include "penstock/run/microbatch/split.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor_split.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/microbatch/internal/spec_rule.h"
#include "penstock/run/microbatch/internal/tree_path.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

// The split tensor with the fewest rows: it bounds the number of microbatches.
struct Shortest {
  std::int64_t num_rows = std::numeric_limits<std::int64_t>::max();
  std::string place;
};

// One argument and how each of its leaves is split. Borrows the argument.
class SplitTree {
 public:
  SplitTree(const c10::IValue& value, const ChunkSpec* spec, std::string_view name,
            Shortest& shortest)
      : value_(&value) {
    plan(value, {.spec = spec}, TreePath(name), shortest);
  }

  // The argument of each microbatch.
  std::vector<c10::IValue> split(int num_microbatches) const;

  // Of the first leaf that is split.
  std::optional<std::int64_t> num_rows() const { return num_rows_; }

 private:
  void plan(const c10::IValue& value, const SpecRule& rule, const TreePath& path,
            Shortest& shortest);

  const c10::IValue* value_;
  // One entry per leaf, in the order of for_each_leaf(); without a dimension it is replicated.
  std::vector<std::optional<std::int64_t>> dims_;
  std::optional<std::int64_t> num_rows_;
};

std::optional<std::int64_t> split_dimension(const c10::IValue& leaf, const SpecRule& rule,
                                            const TreePath& path) {
  require_leaf_rule(leaf, rule, path);
  if (rule.as<ChunkSpec::Replicate>() != nullptr) return std::nullopt;
  if (rule.as<ChunkSpec::Reduce>() != nullptr) {
    throw ArgumentError(
        fmt::format("{}: the spec {} says how to merge; to split, use split or "
                    "replicate",
                    path.text(), to_string(*rule.spec)));
  }
  const auto* split = rule.as<ChunkSpec::Split>();
  if (split == nullptr)
    return is_split_by_default(leaf) ? std::optional<std::int64_t>(0) : std::nullopt;
  if (rule.is_inherited && !is_defined_tensor(leaf)) return std::nullopt;
  return require_dimension(leaf, split->dim, "split", path);
}

void SplitTree::plan(const c10::IValue& value, const SpecRule& rule, const TreePath& path,
                     Shortest& shortest) {
  if (is_branch(value)) {
    const std::vector<SpecRule> rules = rules_of_children(value, rule, path);
    std::size_t index = 0;
    for_each_child(value, [&](const c10::IValue& child) {
      plan(child, rules[index], TreePath(path, value, index), shortest);
      ++index;
    });
    return;
  }
  dims_.push_back(split_dimension(value, rule, path));
  if (!dims_.back()) return;
  const std::int64_t num_rows = value.toTensor().size(*dims_.back());
  if (!num_rows_) num_rows_ = num_rows;
  if (num_rows >= shortest.num_rows) return;
  shortest = {.num_rows = num_rows,
              .place = fmt::format("{}, dimension {}", path.text(), *dims_.back())};
}

std::vector<c10::IValue> SplitTree::split(int num_microbatches) const {
  std::vector<std::vector<at::Tensor>> pieces;
  for_each_leaf(*value_, [&](const c10::IValue& leaf) {
    const std::optional<std::int64_t> dim = dims_[pieces.size()];
    pieces.push_back(dim ? at::tensor_split(leaf.toTensor(), num_microbatches, *dim)
                         : std::vector<at::Tensor>());
  });
  std::vector<c10::IValue> result;
  result.reserve(static_cast<std::size_t>(num_microbatches));
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_microbatches); ++i) {
    std::size_t next = 0;
    result.push_back(map_leaves(*value_, [&](const c10::IValue& leaf) -> c10::IValue {
      const std::vector<at::Tensor>& views = pieces[next++];
      return views.empty() ? leaf : c10::IValue(views[i]);
    }));
  }
  return result;
}

void require_positive(int num_microbatches) {
  if (num_microbatches >= 1) return;
  throw ArgumentError(
      fmt::format("cannot split into {} microbatches; use at least 1", num_microbatches));
}

// How many microbatches there will be.
int granted_microbatches(int wanted, const Shortest& shortest, bool allow_fewer) {
  if (shortest.num_rows >= wanted) return wanted;
  if (allow_fewer && shortest.num_rows > 0) return static_cast<int>(shortest.num_rows);
  throw ArgumentError(fmt::format(
      "cannot split a batch of {} into {} ({}); {}", counted(shortest.num_rows, "row", "rows"),
      counted(wanted, "microbatch", "microbatches"), shortest.place,
      shortest.num_rows > 0 ? fmt::format("use at most {}", shortest.num_rows)
                            : "a microbatch needs at least 1 row"));
}

void require_matching_specs(const Microbatch& batch, const SplitOptions& options) {
  if (options.args && options.args->size() != batch.args.size()) {
    throw ArgumentError(
        fmt::format("found {} for {}; give one for each",
                    counted(static_cast<long long>(options.args->size()), "spec", "specs"),
                    counted(static_cast<long long>(batch.args.size()), "positional argument",
                            "positional arguments")));
  }
  for (const auto& [name, spec] : options.kwargs) {
    if (batch.kwargs.contains(name)) continue;
    std::vector<std::string> given;
    for (const auto& [keyword, value] : batch.kwargs) given.push_back(quote(keyword));
    throw ArgumentError(fmt::format(
        "there is a spec for keyword {}, which is not given; the keywords given are {}",
        quote(name), given.empty() ? "none" : fmt::format("{}", fmt::join(given, ", "))));
  }
}

}  // namespace

std::vector<Microbatch> split_microbatches(const Microbatch& batch, int num_microbatches,
                                           const SplitOptions& options) {
  require_positive(num_microbatches);
  require_matching_specs(batch, options);
  Shortest shortest;
  std::vector<SplitTree> args;
  for (std::size_t index = 0; index < batch.args.size(); ++index) {
    const ChunkSpec* spec = options.args ? &(*options.args)[index] : nullptr;
    args.emplace_back(batch.args[index], spec, fmt::format("argument {}", index), shortest);
  }
  std::vector<std::pair<std::string, SplitTree>> kwargs;
  for (const auto& [keyword, value] : batch.kwargs) {
    const auto found = options.kwargs.find(keyword);
    const ChunkSpec* spec = found == options.kwargs.end() ? nullptr : &found->second;
    const std::string name = "keyword " + quote(keyword);
    kwargs.emplace_back(keyword, SplitTree(value, spec, name, shortest));
  }

  const int granted = granted_microbatches(num_microbatches, shortest, options.allow_fewer);
  std::vector<Microbatch> microbatches(static_cast<std::size_t>(granted));
  for (const SplitTree& tree : args) {
    std::vector<c10::IValue> values = tree.split(granted);
    for (std::size_t i = 0; i < values.size(); ++i) {
      microbatches[i].args.push_back(std::move(values[i]));
    }
  }
  for (const auto& [keyword, tree] : kwargs) {
    std::vector<c10::IValue> values = tree.split(granted);
    for (std::size_t i = 0; i < values.size(); ++i) {
      microbatches[i].kwargs.emplace(keyword, std::move(values[i]));
    }
  }
  return microbatches;
}

std::vector<c10::IValue> split_value(const c10::IValue& value, int num_microbatches,
                                     const std::optional<ChunkSpec>& spec, std::string_view name) {
  require_positive(num_microbatches);
  Shortest shortest;
  const SplitTree tree(value, spec ? &*spec : nullptr, name, shortest);
  return tree.split(granted_microbatches(num_microbatches, shortest, /*allow_fewer=*/false));
}

std::optional<std::int64_t> split_rows(const c10::IValue& value,
                                       const std::optional<ChunkSpec>& spec,
                                       std::string_view name) {
  Shortest shortest;
  return SplitTree(value, spec ? &*spec : nullptr, name, shortest).num_rows();
}

}  // namespace penstock
