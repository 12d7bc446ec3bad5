#pragma once

#include <optional>
#include <string>

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace penstock {

// The path of the module or attribute that `value` is, if it is reached from the graph's first
// input, the module itself, by attribute names alone; "" for that input.
std::optional<std::string> attribute_path(torch::jit::Value* value);

// Replaces calls of methods and functions by what they do, level by level, and gives every node the
// path of its module as scope. Calls of the reference's marker function become markers.
void inline_calls(torch::jit::Graph& graph);

}  // namespace penstock
