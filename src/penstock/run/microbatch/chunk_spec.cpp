#include "penstock/run/microbatch/chunk_spec.h"

#include <algorithm>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

c10::IValue add(const c10::IValue& sum, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return at::add(sum.toTensor(), value.toTensor());
  }
  if (value.isScalar()) return at::add(sum.toTensor(), value.toScalar());
  throw ArgumentError(
      fmt::format("cannot add {} to a sum; expected a tensor or a number", describe(value)));
}

bool equal(const ChunkSpec::Split& left, const ChunkSpec::Split& right) {
  return left.dim == right.dim;
}

bool equal(const ChunkSpec::Replicate& /*left*/, const ChunkSpec::Replicate& /*right*/) {
  return true;
}

bool equal(const ChunkSpec::Reduce& left, const ChunkSpec::Reduce& right) {
  return left.reduction == right.reduction;
}

bool equal(const ChunkSpec::Sequence& left, const ChunkSpec::Sequence& right) {
  return left.items == right.items;
}

bool equal(const ChunkSpec::Dict& left, const ChunkSpec::Dict& right) {
  return left.entries == right.entries;
}

std::string text_of(const ChunkSpec::Split& split) {
  return fmt::format("split({})", split.dim);
}

std::string text_of(const ChunkSpec::Replicate& /*replicate*/) {
  return "replicate";
}

std::string text_of(const ChunkSpec::Reduce& reduce) {
  return reduce.reduction->name;
}

std::string text_of(const ChunkSpec::Sequence& sequence) {
  std::string text = "[";
  for (const ChunkSpec& item : sequence.items) {
    if (text.size() > 1) text += ", ";
    text += to_string(item);
  }
  return text + "]";
}

std::string text_of(const ChunkSpec::Dict& dict) {
  std::string text = "{";
  for (const auto& [key, spec] : dict.entries) {
    if (text.size() > 1) text += ", ";
    text += quote(key) + ": " + to_string(spec);
  }
  return text + "}";
}

}  // namespace

ChunkSpec ChunkSpec::split(std::int64_t dim) {
  return ChunkSpec(Split{.dim = dim});
}

ChunkSpec ChunkSpec::replicate() {
  return ChunkSpec(Replicate{});
}

ChunkSpec ChunkSpec::reduce(c10::IValue initial, Reducer combine) {
  if (!combine) throw ArgumentError("a reducer needs a function that combines two values");
  return ChunkSpec(Reduce{std::make_shared<const Reduction>(
      Reduction{.name = "reduce", .initial = std::move(initial), .combine = std::move(combine)})});
}

ChunkSpec ChunkSpec::sum() {
  static const auto summation = std::make_shared<const Reduction>(
      Reduction{.name = "sum", .initial = at::zeros({}, at::kFloat), .combine = add});
  return ChunkSpec(Reduce{summation});
}

ChunkSpec ChunkSpec::sequence(std::vector<ChunkSpec> items) {
  return ChunkSpec(Sequence{.items = std::move(items)});
}

ChunkSpec ChunkSpec::dict(std::vector<std::pair<std::string, ChunkSpec>> entries) {
  const auto key = [](const auto& entry) -> const std::string& { return entry.first; };
  std::ranges::stable_sort(entries, {}, key);
  const auto twice = std::ranges::adjacent_find(entries, {}, key);
  if (twice != entries.end()) {
    throw ArgumentError(fmt::format("the spec names key {} twice", quote(twice->first)));
  }
  return ChunkSpec(Dict{.entries = std::move(entries)});
}

ChunkSpec ChunkSpec::from_dims(const std::vector<std::int64_t>& dims) {
  std::vector<ChunkSpec> items;
  items.reserve(dims.size());
  for (const std::int64_t dim : dims) items.push_back(split(dim));
  return sequence(std::move(items));
}

ChunkSpec ChunkSpec::from_named_dims(
    const std::vector<std::pair<std::string, std::int64_t>>& dims) {
  std::vector<std::pair<std::string, ChunkSpec>> entries;
  entries.reserve(dims.size());
  for (const auto& [key, dim] : dims) entries.emplace_back(key, split(dim));
  return dict(std::move(entries));
}

bool operator==(const ChunkSpec& left, const ChunkSpec& right) {
  return std::visit(
      [](const auto& a, const auto& b) {
        if constexpr (std::is_same_v<decltype(a), decltype(b)>) {
          return equal(a, b);
        } else {
          return false;
        }
      },
      left.node_, right.node_);
}

std::string to_string(const ChunkSpec& spec) {
  return std::visit([](const auto& node) { return text_of(node); }, spec.node());
}

}  // namespace penstock
