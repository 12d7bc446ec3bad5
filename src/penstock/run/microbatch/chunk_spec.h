#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/ivalue.h>

namespace penstock {

// How a tree is split into microbatches, and merged again: a tree of its own. split, replicate and
// the reducers are leaves, and a leaf holds for the whole subtree it meets.
//
// A value type. Two specs are equal if they say the same; a reducer equals only its own copies.
class ChunkSpec {
 public:
  // (what was reduced so far, the value of the next microbatch) -> reduced with it.
  using Reducer = std::function<c10::IValue(c10::IValue, c10::IValue)>;

  struct Split {
    std::int64_t dim = 0;
  };
  struct Replicate {};
  struct Reduction {
    std::string name;
    c10::IValue initial;
    Reducer combine;
  };
  struct Reduce {
    std::shared_ptr<const Reduction> reduction;
  };
  struct Sequence {
    std::vector<ChunkSpec> items;
  };
  // Sorted by key.
  struct Dict {
    std::vector<std::pair<std::string, ChunkSpec>> entries;
  };
  using Node = std::variant<Split, Replicate, Reduce, Sequence, Dict>;

  // Cuts tensors along `dim`, which may count from the end (-1), and concatenates them there.
  static ChunkSpec split(std::int64_t dim = 0);
  // The same value in every microbatch.
  static ChunkSpec replicate();
  // For merging: folds the values of the microbatches, first to last, from `initial` on.
  static ChunkSpec reduce(c10::IValue initial, Reducer combine);
  // For merging: adds tensors or numbers up, from a float zero on. What a summed loss needs.
  static ChunkSpec sum();
  // One spec per element of a tuple or list.
  static ChunkSpec sequence(std::vector<ChunkSpec> items);
  // One spec per key of a dict, in any order. Throws ArgumentError if a key comes twice.
  static ChunkSpec dict(std::vector<std::pair<std::string, ChunkSpec>> entries);

  // The sequence of split(dim) for each of `dims`.
  static ChunkSpec from_dims(const std::vector<std::int64_t>& dims);
  // The dict of split(dim) for each pair of key and dim.
  static ChunkSpec from_named_dims(const std::vector<std::pair<std::string, std::int64_t>>& dims);

  const Node& node() const { return node_; }

  friend bool operator==(const ChunkSpec& left, const ChunkSpec& right);

 private:
  explicit ChunkSpec(Node node) : node_(std::move(node)) {}

  Node node_;
};

// For example: [split(0), {"mask": replicate, "x": split(-1)}, sum]
std::string to_string(const ChunkSpec& spec);

}  // namespace penstock
