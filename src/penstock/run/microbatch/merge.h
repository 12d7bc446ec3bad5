#pragma once

#include <optional>
#include <span>

#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/chunk_spec.h"

namespace penstock {

// Joins what the model returned for each microbatch into what it would return for the batch. All
// values must have one structure, which the result has too; dicts and dict specs go by key.
//
// A split leaf is concatenated along its dimension, with autograd history; one microbatch alone is
// passed on without a copy. A replicated leaf must be the same in every microbatch. By default
// tensors are concatenated along dimension 0, those without dimensions, such as losses, are stacked
// to one entry per microbatch, and the rest is replicated. A leaf reducer over a branch reduces
// each of its leaves.
//
// Throws ArgumentError, with the place in the output and the microbatch, for whatever cannot be
// merged as asked.
c10::IValue merge_microbatches(std::span<const c10::IValue> values,
                               const std::optional<ChunkSpec>& spec = std::nullopt);

}  // namespace penstock
