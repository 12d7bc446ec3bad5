#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/checkpoint/rank_state.h"

namespace penstock {

// A name of a sharded parameter.
struct SlicedPlace {
  std::string name;
  std::size_t slice = 0;  // its place among the slices
  at::Tensor tensor;      // the slice
  at::Tensor whole;       // without memory
};

// All names; a parameter with several names has as many places.
std::vector<SlicedPlace> places_of(const SlicedParameters& sliced);

}  // namespace penstock
