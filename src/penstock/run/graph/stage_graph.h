#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/stage/shared_claims.h"
#include "penstock/run/stage/stage_module.h"

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace penstock {

// One stage of a captured model: a graph that takes `values`, then `tensors`, then `shared`, and
// returns one value, which is a tuple if a stage that is not the last hands on several.
struct StageGraph {
  struct Tensor {
    std::string name;  // qualified, in the model
    at::Tensor tensor;
    bool is_buffer = false;
  };

  std::shared_ptr<torch::jit::Graph> graph;  // taken over by the module
  std::vector<std::string> values;           // names of the inputs that are no tensors of the model
  // Whether callers may give them by name too: of the first stage, whose values are the model's
  // arguments in order. Those that are not given have the values in `defaults`, if there.
  bool takes_keywords = false;
  KeywordArguments defaults;
  // Values that the graph was made for and holds for alone, by name; another one is an error.
  KeywordArguments fixed;
  std::vector<Tensor> tensors;  // each distinct tensor once

  // Parameters that several stages use: one entry per use, in the order of the nodes that use it.
  // Gradients are summed from the last use of the model to the first, as libtorch's engine does it.
  // The name of a parameter is the same in all stages.
  std::vector<Tensor> shared;
  // One object for all stages of the model in a process; needed where `shared` is not empty.
  std::shared_ptr<SharedClaims> claims;

  // Nodes that draw random numbers, also in blocks, and the number of each among all such nodes of
  // the model, from 0 on, in program order.
  std::unordered_map<const torch::jit::Node*, std::uint64_t> random_sites;

  NamedTensors aliases;  // further names of the tensors above: registered twice in the model
};

// The stage that runs `graph` operator by operator, so that its autograd graph is that of the
// operators and a backward can be split. Throws ArgumentError if graph and lists do not fit.
//
// train() rewrites the flags of operators that have one (dropout, batch norm, ...); to() moves
// tensors and constants and rewrites the devices of operators that create tensors. Both are
// for times when no microbatch is under way.
std::shared_ptr<StageModule> make_graph_module(StageGraph graph);

}  // namespace penstock
