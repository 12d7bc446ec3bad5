#pragma once

#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include "penstock/run/pipe/pipe.h"

namespace penstock {

struct PipeSequentialOptions {
  // 0: every module is a stage. Otherwise neighbours are put together, so that the stage with the
  // most bytes of parameters has as few as possible.
  int num_stages = 0;
};

// Modules that are called one after the other, with a tensor each, as stages. Nothing is captured:
// the modules run as they are, and anything may happen in their forwards. Names are those that the
// Sequential gives its children; of a list, the positions.
Pipe pipe_sequential(const torch::nn::Sequential& model, const PipeSequentialOptions& options = {});
Pipe pipe_sequential(std::vector<torch::nn::AnyModule> modules,
                     const PipeSequentialOptions& options = {});

}  // namespace penstock
