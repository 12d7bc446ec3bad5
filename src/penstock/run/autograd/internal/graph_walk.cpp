#include "penstock/run/autograd/internal/graph_walk.h"

namespace penstock {

using torch::autograd::Edge;

void GraphWalk::walk(std::span<const Edge> roots, std::span<const Edge> inputs) {
  table_.clear();
  nodes_.clear();
  path_.clear();
  for (const Edge& edge : inputs) {
    WalkedNode& input = nodes_[enter(edge.function)];
    input.is_input = true;
    input.reaches_input = true;
  }
  for (const Edge& edge : roots) {
    enter(edge.function);
    descend();
  }
}

bool GraphWalk::reaches_input(const Edge& edge) const {
  return nodes_[table_.at(edge.function.get())].reaches_input;
}

// Depth first, and not recursive: graphs are as deep as the model.
void GraphWalk::descend() {
  while (!path_.empty()) {
    Step& step = path_.back();
    const std::uint32_t parent = step.number;
    const torch::autograd::edge_list& edges = nodes_[parent].node().next_edges();
    if (step.next_edge == edges.size()) {
      leave();
      continue;
    }
    const Edge& edge = edges[step.next_edge++];
    if (!edge.is_valid()) continue;
    const std::size_t depth = path_.size();
    const std::uint32_t child = enter(edge.function);
    if (path_.size() == depth) count_child(parent, child);
  }
}

void GraphWalk::leave() {
  const std::uint32_t child = path_.back().number;
  path_.pop_back();
  if (!path_.empty()) count_child(path_.back().number, child);
}

// The number of the node. One that is new, and not a leaf, becomes the end of the path.
std::uint32_t GraphWalk::enter(const NodePtr& pointer) {
  const NodeTable::Entry entry =
      table_.insert(pointer.get(), static_cast<std::uint32_t>(nodes_.size()));
  if (entry.is_new) {
    nodes_.push_back({.pointer = &pointer});
    if (!pointer->next_edges().empty()) path_.push_back({.number = entry.number});
  }
  return entry.number;
}

void GraphWalk::count_child(std::uint32_t parent, std::uint32_t child) {
  const bool reaches = nodes_[child].reaches_input;
  nodes_[parent].reaches_input |= reaches;
  nodes_[parent].feeds_parameters |= !reaches;
}

}  // namespace penstock
