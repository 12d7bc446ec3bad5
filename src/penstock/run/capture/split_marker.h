#pragma once

#include <ATen/core/symbol.h>

namespace torch::jit {
struct Node;
}

namespace penstock {

// The kind of the node that pipe_split() leaves in a graph. Whoever loads TorchScript must refer to
// this, so that the operator behind it is linked into the program.
c10::Symbol split_marker();
bool is_split_marker(torch::jit::Node* node);

}  // namespace penstock
