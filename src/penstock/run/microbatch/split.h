#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/chunk_spec.h"
#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

struct SplitOptions {
  // One spec per positional argument. Without it every argument has the default.
  std::optional<std::vector<ChunkSpec>> args = std::nullopt;
  // By keyword; a keyword that is not named has the default.
  std::map<std::string, ChunkSpec> kwargs = {};
  // With fewer rows than microbatches: make only as many microbatches as there are rows, instead of
  // throwing. The argument with the fewest rows decides. Not for a pipeline, whose schedule has a
  // fixed number.
  bool allow_fewer = false;
};

// Splits a batch into microbatches whose sizes differ by at most one, the larger ones first: 7 rows
// in 4 microbatches are 2, 2, 2, 1. By default tensors are split along dimension 0, and the rest,
// tensors without dimensions included, is the same in every microbatch.
//
// The tensors of a microbatch are views: they share storage, version counter and autograd history
// with the batch. Writing to one in place changes the batch, and makes the backward of any
// microbatch fail that has saved its part. Clone first where a model does that. The gradient of a
// leaf tensor arrives in the batch's tensor, not in the views.
//
// Throws ArgumentError, with the place in the arguments, for whatever cannot be split as asked.
std::vector<Microbatch> split_microbatches(const Microbatch& batch, int num_microbatches,
                                           const SplitOptions& options = {});

// The same for one tree, such as the targets; errors call it `name`.
std::vector<c10::IValue> split_value(const c10::IValue& value, int num_microbatches,
                                     const std::optional<ChunkSpec>& spec = std::nullopt,
                                     std::string_view name = "value");

// How many rows that split has to share out: the size of the first tensor it cuts, along the
// dimension it is cut along. None if all of the tree is replicated.
std::optional<std::int64_t> split_rows(const c10::IValue& value,
                                       const std::optional<ChunkSpec>& spec = std::nullopt,
                                       std::string_view name = "value");

}  // namespace penstock
