#pragma once

#include <cstddef>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "penstock/run/autograd/internal/graph_walk.h"
#include "penstock/run/autograd/internal/release_hooks.h"
#include "penstock/run/autograd/internal/roots.h"
#include "penstock/run/libtorch/compat.h"

namespace penstock {

// The backward from outputs to inputs, which stops where the ways to parameters branch off.
//
//   output --- linear --- relu --- linear --- input      I: along here
//                |                   |                   W: down from the boundary nodes, `linear`
//              weight              weight
//
// Keeps its memory from run to run.
class InputHalf {
 public:
  // Returns the gradients that arrive at `inputs`, which are edges of leaves, and puts into
  // `weight_roots` where to go on: the roots that lead to no input, what is below boundary nodes
  // that have hooks on their results, and then the other boundary nodes. The latter have lost their
  // edges towards inputs; all other nodes on the way have dropped what they saved. Hooks on tensors
  // and nodes on the way have had their call, and W will not call them again.
  torch::autograd::variable_list run(const Roots& roots, const torch::autograd::edge_list& inputs,
                                     Roots& weight_roots);

  // Of the `weight_roots` of the last run. The gradients from there on are complete: W adds nothing
  // to them.
  std::size_t first_boundary_root() const { return first_boundary_root_; }

  // Lets go of the graph, after run() returned or threw, and before `roots` do.
  void clear();

 private:
  // An edge of a boundary node, and the place it was taken from.
  struct HiddenEdge {
    torch::autograd::Edge* place = nullptr;
    torch::autograd::Edge edge;
  };

  // An edge that ends in a sink instead, of a boundary node that is computed as a whole.
  struct DivertedEdge {
    NodePtr sink;
    torch::autograd::Edge edge;
  };

  void prepare_nodes(Roots& weight_roots);
  void hide_weight_edges(torch::autograd::Node& node);
  void divert_weight_edges(torch::autograd::Node& node);
  void hide(torch::autograd::Edge& edge);
  void remove_hooks();
  void turn_to_weights();

  GraphWalk walk_;
  std::size_t first_boundary_root_ = 0;
  torch::autograd::edge_list captures_;  // the inputs, the boundary nodes without hooks, the sinks
  ReleaseHooks release_hooks_;
  std::vector<torch::autograd::Node*> hooked_boundary_;
  std::vector<torch::autograd::Node*> boundary_;  // with the nodes they wrap
  std::vector<HiddenEdge> hidden_edges_;
  std::vector<DivertedEdge> diverted_edges_;
  torch::autograd::edge_list dropped_edges_;
};

}  // namespace penstock
