#pragma once

#include <string>

#include <torch/csrc/jit/ir/ir.h>

namespace penstock {

// For messages: "aten::addmm in layers.3 (model.py:12)", as far as the graph knows it.
std::string operator_place(const torch::jit::Node& node);

}  // namespace penstock
