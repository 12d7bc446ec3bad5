#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "penstock/run/autograd/internal/node_table.h"
#include "penstock/run/libtorch/compat.h"

namespace penstock {

// A node of the graph, as seen from the outputs.
struct WalkedNode {
  const NodePtr* pointer = nullptr;  // where an edge of the graph holds it
  bool is_input = false;
  bool reaches_input = false;     // a gradient passes through on its way to an input
  bool feeds_parameters = false;  // hands gradients to nodes that reach no input

  torch::autograd::Node& node() const { return **pointer; }
  // Where the ways to parameters leave the ways to inputs.
  bool is_boundary() const { return reaches_input && feeds_parameters; }
};

// Tells the nodes on the way from outputs to inputs from those that lead to parameters only.
// Keeps its memory from walk to walk.
class GraphWalk {
 public:
  // Visits all nodes below `roots`; `inputs` are the edges of leaves. The pointers of nodes() hold
  // until one of the lists, or the graph, is changed.
  void walk(std::span<const torch::autograd::Edge> roots,
            std::span<const torch::autograd::Edge> inputs);

  std::span<const WalkedNode> nodes() const { return nodes_; }
  bool reaches_input(const torch::autograd::Edge& edge) const;

 private:
  struct Step {
    std::uint32_t number = 0;  // of the node
    std::size_t next_edge = 0;
  };

  void descend();
  void leave();
  std::uint32_t enter(const NodePtr& pointer);
  void count_child(std::uint32_t parent, std::uint32_t child);

  NodeTable table_;
  std::vector<WalkedNode> nodes_;
  std::vector<Step> path_;  // from a root down to the node being visited
};

}  // namespace penstock
