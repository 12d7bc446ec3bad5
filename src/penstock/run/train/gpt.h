#pragma once

#include "penstock/run/capture/trace.h"

namespace penstock {

// A decoder in the manner of GPT-2: learned positions, norms before attention and after it, GELU.
struct GptOptions {
  int layers = 4;
  int width = 96;
  int heads = 3;     // divides the width
  int context = 64;  // tokens that it sees
  int vocabulary = 256;
  double dropout = 0;
  bool is_tied = true;  // the embedding is the weight of the head, too
};

// Takes tokens [rows, context] and returns scores [rows, context, vocabulary] of the tokens that
// follow. Initialized from libtorch's default generator. Throws ArgumentError on sizes that make no
// model.
TraceSource make_gpt(const GptOptions& options);

}  // namespace penstock
