#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>

namespace penstock {

enum class Direction : std::uint8_t {
  Forward,   // activations, for the forward of a stage
  Backward,  // gradients, for the backward of a stage
};

// Which message: the values that `stage` needs to take `microbatch` in `direction`.
struct MessageKey {
  int stage = 0;
  int microbatch = 0;
  Direction direction = Direction::Forward;

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

// What one stage hands to its neighbour for one microbatch. Activations are tensors, undefined ones
// too, None, bools, integers, doubles, and lists of those numbers (c10::List<bool>, <int64_t> and
// <double>), such as sizes that scripted code computes; a tensor is a leaf of its own, and requires
// a gradient if the sender wants one back. Gradients are tensors, one per activation, undefined
// where there is none.
//
// Messages are passed on by swapping, so that their buffers are used again in the next step.
using Message = std::vector<c10::IValue>;

}  // namespace penstock
