#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace penstock {

// visit(value) for every value of the outermost block that `node` reads, also in its inner blocks.
template <typename Visit>
void for_each_read(torch::jit::Node* node, const Visit& visit) {
  const auto visit_outer = [&](torch::jit::Value* value) {
    if (value->node()->owningBlock() == node->owningGraph()->block()) visit(value);
  };
  for (torch::jit::Value* input : node->inputs()) visit_outer(input);
  for (torch::jit::Block* block : node->blocks()) {
    for (torch::jit::Node* inner : block->nodes()) for_each_read(inner, visit);
    for (torch::jit::Value* output : block->outputs()) visit_outer(output);
  }
}

// visit(value) for every input that `node` itself changes in place.
template <typename Visit>
void for_each_write(torch::jit::Node* node, const Visit& visit) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (schema == nullptr) return;
  for (std::size_t index = 0; index < node->inputs().size(); ++index) {
    if (index >= schema->arguments().size()) break;
    const c10::AliasInfo* alias = schema->arguments()[index].alias_info();
    if (alias != nullptr && alias->isWrite()) visit(node->inputs()[index]);
  }
}

// visit(node) for `node` and every node inside of its blocks.
template <typename Visit>
void for_each_node(torch::jit::Node* node, const Visit& visit) {
  visit(node);
  for (torch::jit::Block* block : node->blocks()) {
    for (torch::jit::Node* inner : block->nodes()) for_each_node(inner, visit);
  }
}

}  // namespace penstock
