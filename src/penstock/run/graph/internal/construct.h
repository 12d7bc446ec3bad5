#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

namespace penstock {

// What libtorch has no operators for, because its interpreter does it by itself.

// Whether `node` makes a list, tuple or dict out of its inputs.
bool is_construct(const torch::jit::Node& node);
// Makes it, from the values on the stack, which become that one value.
void construct(const torch::jit::Node& node, torch::jit::Stack& stack);

// Whether `node` takes a list or tuple apart.
bool is_unpack(const torch::jit::Node& node);
// Replaces the one value on the stack by its elements, as many as the node has outputs.
void unpack(const torch::jit::Node& node, torch::jit::Stack& stack);

}  // namespace penstock
