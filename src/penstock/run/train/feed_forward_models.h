#pragma once

#include <cstdint>

#include "penstock/run/capture/trace.h"

namespace penstock {

// Linear layers with GELU in between.
struct MlpOptions {
  std::int64_t inputs = 1;   // numbers of a sample
  std::int64_t outputs = 1;  // that it returns
  int layers = 4;            // that are linear
  int width = 64;
  double dropout = 0;
};

// Takes [rows, inputs] and returns [rows, outputs].
TraceSource make_mlp(const MlpOptions& options);

// Residual blocks of two convolutions with batch norm each. After a third of them and after two,
// the picture is halved and the channels are doubled.
struct ResnetOptions {
  std::int64_t channels = 3;  // of a picture
  std::int64_t classes = 10;
  int layers = 3;  // blocks
  int width = 16;  // channels after the first convolution
};

// Takes [rows, channels, height, width] and returns [rows, classes].
TraceSource make_resnet(const ResnetOptions& options);

// Both are initialized from libtorch's default generator, and throw ArgumentError on sizes that
// make no model.

}  // namespace penstock
