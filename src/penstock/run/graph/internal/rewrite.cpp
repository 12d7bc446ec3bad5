#include "penstock/run/graph/internal/rewrite.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/jit/ir/constants.h>

namespace penstock {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// visit(node) for all nodes, those that it adds excepted.
template <typename Visit>
void visit_nodes(Block& block, const Visit& visit) {
  for (auto next = block.nodes().begin(); next != block.nodes().end();) {
    Node* node = *next;
    ++next;
    for (Block* inner : node->blocks()) visit_nodes(*inner, visit);
    visit(*node);
  }
}

bool is_constant(const Value& value) {
  return value.node()->kind() == c10::prim::Constant;
}

bool is_none(const Value& value) {
  return is_constant(value) && torch::jit::toIValue(&value)->isNone();
}

// The position of an argument, if the operator has it and the node gives it as an input.
std::optional<std::size_t> argument_of(const Node& node, const char* name) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  const auto index = schema->argumentIndexWithName(name);
  if (!index || static_cast<std::size_t>(*index) >= node.inputs().size()) return std::nullopt;
  return static_cast<std::size_t>(*index);
}

// Gives the node a constant of its own: others may use the old one for other things.
void set_constant(Node& node, std::size_t input, const c10::IValue& value) {
  const torch::jit::WithInsertPoint before(&node);
  node.replaceInput(input, node.owningGraph()->insertConstant(value));
}

bool has_no_statistics(const Node& node) {
  const auto mean = argument_of(node, "running_mean");
  return mean && is_none(*node.input(*mean));
}

bool has_tensors(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
           argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

void set_device_of(Node& node, at::Device device) {
  const auto index = argument_of(node, "device");
  if (!index || !is_constant(*node.input(*index))) return;
  const c10::IValue value = *torch::jit::toIValue(node.input(*index));
  const bool is_free = value.isNone() && !has_tensors(*node.maybeSchema());
  if (value.isDevice() || is_free) set_constant(node, *index, device);
}

void move_constant(Node& node, at::Device device) {
  if (node.kind() != c10::prim::Constant) return;
  const auto value = torch::jit::toIValue(node.output());
  if (!value || !value->isTensor() || value->toTensor().device() == device) return;
  const torch::jit::WithInsertPoint before(&node);
  node.output()->replaceAllUsesWith(
      node.owningGraph()->insertConstant(value->toTensor().to(device)));
}

}  // namespace

void set_training(Graph& graph, bool on) {
  visit_nodes(*graph.block(), [on](Node& node) {
    for (const char* name : {"train", "training", "use_input_stats"}) {
      const auto index = argument_of(node, name);
      if (index && is_constant(*node.input(*index)) && !has_no_statistics(node)) {
        set_constant(node, *index, on);
      }
    }
  });
}

void set_device(Graph& graph, at::Device device) {
  visit_nodes(*graph.block(), [device](Node& node) {
    move_constant(node, device);
    set_device_of(node, device);
  });
}

}  // namespace penstock
