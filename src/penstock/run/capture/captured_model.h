#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Optional.h>

#include "penstock/base/error.h"

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace penstock {

// A model that cannot be turned into a graph as it is.
class CaptureError : public Error {
 public:
  using Error::Error;
};

// A whole model as one graph: the calls of modules are inlined, and every tensor that the model
// owns is an input of the graph.
struct CapturedModel {
  struct Argument {
    std::string name;
    c10::optional<c10::IValue> default_value = c10::nullopt;
    // Not a tensor: the graph was made for this value and holds for no other.
    c10::optional<c10::IValue> fixed_value = c10::nullopt;
  };
  struct Tensor {
    std::string name;  // qualified, as the model has it
    at::Tensor tensor;
    bool is_buffer = false;
  };
  struct Alias {
    std::string name;   // a further name
    std::string names;  // of this one of `tensors`
  };

  // One output. The inputs are the arguments and then the tensors. Each node's scope is the path
  // of its module, as far as it is known.
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<Argument> arguments;
  std::vector<Tensor> tensors;  // each once, however many names it has
  std::vector<Alias> aliases;
  std::vector<std::string> module_paths;  // of all modules, without the root
};

// The path of the module that a node belongs to, "" for the root: from its scope.
std::string module_path_of(torch::jit::Node* node);

// Whether the model had switched gradients off where it called the node's operator.
bool is_without_gradients(torch::jit::Node* node);

// For messages: "aten::relu in layers.0".
std::string describe_node(torch::jit::Node* node);

}  // namespace penstock
