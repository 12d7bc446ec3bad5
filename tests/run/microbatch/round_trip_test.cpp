#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include "penstock/run/microbatch/merge.h"
#include "penstock/run/microbatch/split.h"
#include "penstock/run/microbatch/tree.h"
#include "tests/run/microbatch/trees.h"

namespace penstock::testing {
namespace {

// A random tree and a spec of its own structure.
struct Sample {
  c10::IValue value;
  ChunkSpec spec = ChunkSpec::replicate();
};

int random_number(int first, int end) {
  return *rc::gen::inRange(first, end);
}

// Has at least `min_rows` in the dimension to split, and any extent elsewhere, none included.
Sample random_tensor(int min_rows, bool only_dim_0) {
  const int num_dims = random_number(1, 4);
  const int dim = only_dim_0 ? 0 : random_number(0, num_dims);
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < num_dims; ++i) {
    sizes.push_back(i == dim ? random_number(min_rows, 3 * min_rows + 2) : random_number(0, 4));
  }
  const bool from_end = random_number(0, 2) == 1;
  return {.value = torch::randn(sizes), .spec = ChunkSpec::split(from_end ? dim - num_dims : dim)};
}

// By default, a tensor without dimensions is stacked when it is merged.
Sample random_plain_leaf(bool is_by_default) {
  switch (random_number(0, is_by_default ? 5 : 6)) {
    case 0:
      return {.value = c10::IValue()};
    case 1:
      return {.value = random_number(-9, 9)};
    case 2:
      return {.value = 0.5};
    case 3:
      return {.value = true};
    case 4:
      return {.value = "text"};
    default:
      return {.value = torch::randn({})};
  }
}

Sample random_tree(int depth, int min_rows, bool only_dim_0) {
  const int kind = random_number(0, depth > 0 ? 8 : 4);
  if (kind < 3) return random_tensor(min_rows, only_dim_0);
  if (kind == 3) return random_plain_leaf(only_dim_0);
  if (kind == 4) {
    const Sample left = random_tensor(min_rows, only_dim_0);
    const Sample right = random_tensor(min_rows, only_dim_0);
    return {.value = pair_of(left.value, right.value),
            .spec = ChunkSpec::sequence({left.spec, right.spec})};
  }
  std::vector<c10::IValue> children;
  std::vector<ChunkSpec> specs;
  std::vector<std::pair<std::string, c10::IValue>> entries;
  std::vector<std::pair<std::string, ChunkSpec>> keyed_specs;
  const int num_children = random_number(0, 4);
  for (int i = 0; i < num_children; ++i) {
    const Sample child = random_tree(depth - 1, min_rows, only_dim_0);
    const std::string key(1, static_cast<char>('z' - i));
    children.push_back(child.value);
    specs.push_back(child.spec);
    entries.emplace_back(key, child.value);
    keyed_specs.emplace_back(key, child.spec);
  }
  if (kind == 5) return {.value = tuple_of(children), .spec = ChunkSpec::sequence(specs)};
  if (kind == 6) return {.value = any_list_of(children), .spec = ChunkSpec::sequence(specs)};
  return {.value = dict_of(entries), .spec = ChunkSpec::dict(keyed_specs)};
}

void require_identity(const c10::IValue& value, int num_microbatches,
                      const std::optional<ChunkSpec>& spec) {
  const std::vector<c10::IValue> parts = split_value(value, num_microbatches, spec);
  RC_ASSERT(parts.size() == static_cast<std::size_t>(num_microbatches));
  const c10::IValue merged = merge_microbatches(parts, spec);
  RC_ASSERT(equal_values(merged, value));
  RC_ASSERT(describe(merged) == describe(value));
  RC_ASSERT(merged.type()->annotation_str() == value.type()->annotation_str());
}

RC_GTEST_PROP(SplitThenMerge, IsTheIdentityByDefault, ()) {
  const int num_microbatches = random_number(1, 6);
  require_identity(random_tree(3, num_microbatches, /*only_dim_0=*/true).value, num_microbatches,
                   std::nullopt);
}

RC_GTEST_PROP(SplitThenMerge, IsTheIdentityWithSpecs, ()) {
  const int num_microbatches = random_number(1, 6);
  const Sample sample = random_tree(3, num_microbatches, /*only_dim_0=*/false);
  require_identity(sample.value, num_microbatches, sample.spec);
}

RC_GTEST_PROP(SplitValue, GivesSizesThatDifferByAtMostOne, ()) {
  const int num_microbatches = random_number(1, 9);
  const int num_rows = random_number(num_microbatches, 40);
  const auto parts = split_value(torch::zeros({num_rows}), num_microbatches);
  for (int i = 0; i < num_microbatches; ++i) {
    const int expected = num_rows / num_microbatches + (i < num_rows % num_microbatches ? 1 : 0);
    RC_ASSERT(parts[static_cast<std::size_t>(i)].toTensor().size(0) == expected);
  }
}

}  // namespace
}  // namespace penstock::testing
