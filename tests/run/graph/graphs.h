#pragma once

#include <string>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "penstock/run/graph/stage_graph.h"

namespace penstock {

// A stage whose graph is given as text, without tensors yet.
inline StageGraph stage_graph(const std::string& text, std::vector<std::string> values) {
  StageGraph stage;
  stage.graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, stage.graph.get());
  stage.values = std::move(values);
  return stage;
}

// The nth node of a kind, at top level or in blocks.
inline const torch::jit::Node* find_node(const torch::jit::Block& block, const char* kind) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::Symbol::fromQualString(kind)) return node;
    for (const torch::jit::Block* inner : node->blocks()) {
      if (const auto* found = find_node(*inner, kind)) return found;
    }
  }
  return nullptr;
}

}  // namespace penstock
