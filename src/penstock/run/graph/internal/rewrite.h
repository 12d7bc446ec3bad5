#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

namespace penstock {

// Sets the constant flags by which operators tell training from evaluation: `train`, `training`
// and `use_input_stats`, in blocks too. Norms without running statistics keep theirs: they use
// those of the batch in both.
void set_training(torch::jit::Graph& graph, bool on);

// Moves constant tensors, and rewrites the constant devices of operators; those that create tensors
// from none, on no particular device, get one.
void set_device(torch::jit::Graph& graph, at::Device device);

}  // namespace penstock
