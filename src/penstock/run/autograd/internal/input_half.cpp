#include "penstock/run/autograd/internal/input_half.h"

#include <cstdint>
#include <memory>
#include <typeinfo>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include "penstock/run/libtorch/compat.h"

namespace penstock {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// The last hook of a node that has others: it sees the gradients that the node works on.
class RecordingHook final : public torch::autograd::FunctionPreHook {
 public:
  RecordingHook(const NodePtr& node, Roots& roots) : node_(node), roots_(roots) {}

  variable_list operator()(const variable_list& gradients) override {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        roots_.add(Edge(node_, static_cast<std::uint32_t>(i)), gradients[i]);
      }
    }
    return gradients;
  }

 private:
  const NodePtr& node_;  // in an edge of the graph; a pointer of our own would close a cycle
  Roots& roots_;
};

// Stands in for the end of an edge: the engine captures the gradient that arrives, and goes no
// further.
class Sink final : public Node {
 public:
  explicit Sink(const at::Tensor& like) { add_input_metadata(like); }
  variable_list apply(variable_list&& /*gradients*/) override { return {}; }
};

// The operation inside a node for a change of a view in place. All its edges but the first are
// those of the node, and libtorch 2.x insists that they stay so.
Node* wrapped_node(Node& node) {
  if (typeid(node) != typeid(torch::autograd::CopySlices)) return nullptr;
  return static_cast<torch::autograd::CopySlices&>(node).fn.get();
}

}  // namespace

variable_list InputHalf::run(const Roots& roots, const edge_list& inputs, Roots& weight_roots) {
  if (!inputs.empty()) walk_.walk(roots.edges, inputs);
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (inputs.empty() || !walk_.reaches_input(roots.edges[i])) {
      weight_roots.add(roots.edges[i], roots.gradients[i]);
    }
  }
  first_boundary_root_ = weight_roots.size();
  if (first_boundary_root_ == roots.size()) return variable_list(inputs.size());

  captures_.assign(inputs.begin(), inputs.end());
  prepare_nodes(weight_roots);
  const std::size_t first_sink = captures_.size();
  for (const DivertedEdge& diverted : diverted_edges_) captures_.emplace_back(diverted.sink, 0);
  variable_list captured = torch::autograd::Engine::get_default_engine().execute(
      roots.edges, roots.gradients, /*keep_graph=*/true, /*create_graph=*/false,
      /*accumulate_grad=*/false, captures_);
  remove_hooks();
  turn_to_weights();
  for (std::size_t i = inputs.size(); i < first_sink; ++i) {
    if (captured[i].defined()) {
      weight_roots.add(std::move(captures_[i]), std::move(captured[i]));
    }
  }
  for (std::size_t i = first_sink; i < captured.size(); ++i) {
    if (!captured[i].defined()) continue;
    weight_roots.insert(first_boundary_root_++, std::move(diverted_edges_[i - first_sink].edge),
                        std::move(captured[i]));
  }
  captured.resize(inputs.size());
  return captured;
}

void InputHalf::clear() {
  remove_hooks();
  captures_.clear();
  boundary_.clear();
  hidden_edges_.clear();
  diverted_edges_.clear();
  dropped_edges_.clear();
}

// A boundary node runs again in W and must find what it saved; the others on the way to the inputs
// are done after I. The engine captures gradients before hooks change them, so that hooks need a
// recording behind them. Hooks that see what a node has computed need all of it, and one call: a
// boundary node that has such is done after I, too, and W begins below it.
void InputHalf::prepare_nodes(Roots& weight_roots) {
  for (const WalkedNode& walked : walk_.nodes()) {
    if (!walked.reaches_input || walked.is_input) continue;
    Node& node = walked.node();
    const bool is_whole = walked.is_boundary() && !node.post_hooks().empty();
    if (is_whole) divert_weight_edges(node);
    if (is_whole || !walked.is_boundary()) {
      release_hooks_.add(node);
      continue;
    }
    hide_weight_edges(node);
    if (has_gradient_hooks(node)) {
      hooked_boundary_.push_back(&node);
      node.add_pre_hook(std::make_unique<RecordingHook>(*walked.pointer, weight_roots));
    } else {
      for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {
        captures_.emplace_back(*walked.pointer, i);
      }
    }
  }
}

// The captures alone would tell the engine what to leave out. But it would still walk all of the
// graph; and libtorch 1.13 would add to the parameters of a change in place.
void InputHalf::hide_weight_edges(Node& node) {
  boundary_.push_back(&node);
  for (Edge& edge : node.next_edges()) {
    if (edge.is_valid() && !walk_.reaches_input(edge)) hide(edge);
  }
  Node* wrapped = wrapped_node(node);
  if (wrapped == nullptr) return;
  boundary_.push_back(wrapped);
  for (std::size_t i = 0; i < wrapped->num_outputs(); ++i) {
    Edge& edge = wrapped->next_edges()[i];
    if (edge.is_valid() && !node.next_edge(i).is_valid()) hide(edge);
  }
}

// Ends the ways to parameters in sinks.
void InputHalf::divert_weight_edges(Node& node) {
  Node* wrapped = wrapped_node(node);
  for (std::size_t i = 0; i < node.next_edges().size(); ++i) {
    Edge& edge = node.next_edges()[i];
    if (!edge.is_valid() || walk_.reaches_input(edge)) continue;
    DivertedEdge& diverted = diverted_edges_.emplace_back();
    const auto& metadata = edge.function->input_metadata(edge.input_nr);
    diverted.sink = make_node<Sink>(metadata.zeros_like());
    diverted.edge = std::exchange(edge, Edge(diverted.sink, 0));
    if (wrapped == nullptr || !wrapped->next_edge(i).is_valid()) continue;
    dropped_edges_.push_back(std::exchange(wrapped->next_edges()[i], edge));
  }
}

void InputHalf::hide(Edge& edge) {
  HiddenEdge& hidden = hidden_edges_.emplace_back();
  hidden.place = &edge;
  hidden.edge = std::exchange(edge, Edge());
}

void InputHalf::remove_hooks() {
  release_hooks_.remove_all();
  for (Node* node : hooked_boundary_) clear_gradient_hooks(*node);
  hooked_boundary_.clear();
}

// Gives the boundary nodes the ways to parameters instead of those to inputs, so that W computes
// the gradients of weights alone, and adds nothing to boundary nodes further down.
void InputHalf::turn_to_weights() {
  // Whole branches may end with an edge, so the edges are kept until all are done with.
  for (Node* node : boundary_) {
    for (Edge& edge : node->next_edges()) {
      if (edge.is_valid()) dropped_edges_.push_back(std::exchange(edge, Edge()));
    }
  }
  for (HiddenEdge& hidden : hidden_edges_) *hidden.place = std::move(hidden.edge);
}

}  // namespace penstock
