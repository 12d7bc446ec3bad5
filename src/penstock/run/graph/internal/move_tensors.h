#pragma once

#include <ATen/core/Tensor.h>

#include "penstock/run/graph/stage_graph.h"

namespace penstock {

// Moves all tensors of the stage. They stay the same tensors where libtorch can exchange their
// memory, so that an optimizer goes on with them; between kinds of devices it cannot.
void move_tensors(StageGraph& stage, at::Device device);

}  // namespace penstock
