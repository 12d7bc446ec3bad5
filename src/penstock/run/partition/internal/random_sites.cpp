#include "penstock/run/partition/internal/random_sites.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <torch/csrc/jit/ir/ir.h>

#include "penstock/run/partition/internal/graph_nodes.h"

namespace penstock {
namespace {

using torch::jit::Node;

bool draws_random_numbers(Node* node) {
  if (node->isNondeterministic()) return true;
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (schema == nullptr) return false;
  // Composed of others, which have the generator.
  constexpr std::array<std::string_view, 6> kComposed = {
      "dropout", "rrelu", "lstm", "gru", "rnn_", "dot_product_attention"};
  const std::string_view name = schema->name();
  if (std::any_of(kComposed.begin(), kComposed.end(),
                  [name](auto part) { return name.find(part) != std::string_view::npos; })) {
    return true;
  }
  return std::any_of(schema->arguments().begin(), schema->arguments().end(),
                     [](const c10::Argument& argument) { return argument.name() == "generator"; });
}

}  // namespace

RandomSites::RandomSites(torch::jit::Graph& graph) {
  for (Node* node : graph.nodes()) {
    for_each_node(node, [this](Node* inner) {
      if (draws_random_numbers(inner)) sites_.emplace(inner, sites_.size());
    });
  }
}

void RandomSites::copy(Node* node, Node* clone,
                       std::unordered_map<const Node*, std::uint64_t>& sites) const {
  if (const auto site = sites_.find(node); site != sites_.end()) sites.emplace(clone, site->second);
  for (std::size_t block = 0; block < node->blocks().size(); ++block) {
    auto copied = clone->blocks()[block]->nodes().begin();
    for (Node* inner : node->blocks()[block]->nodes()) copy(inner, *copied++, sites);
  }
}

}  // namespace penstock
