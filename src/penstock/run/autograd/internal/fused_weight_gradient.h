#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace penstock {

// Adds to the parameters of `node`, a linear layer, what `gradient` of its output gives them, and
// cuts the edges it has served. Parameters with hooks, or with no dense gradient to add to, and
// nodes of any other kind, are left to the engine. Locks parameters as the engine does.
// Returns whether the engine has nothing left to do for `node`.
bool add_fused_weight_gradient(torch::autograd::Node& node, const at::Tensor& gradient);

}  // namespace penstock
