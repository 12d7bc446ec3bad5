#include "penstock/run/partition/internal/in_place.h"

#include <string>
#include <unordered_map>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/partition/internal/graph_nodes.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// Sets of values that may share memory, as the operators' schemas say. Inputs of the graph are
// taken to be separate.
class SharedMemory {
 public:
  explicit SharedMemory(torch::jit::Graph& graph) {
    for (Node* node : graph.nodes()) {
      for_each_node(node, [this](Node* inner) { add(inner); });
    }
  }

  bool is_shared(Value* left, Value* right) { return root(left) == root(right); }

 private:
  void add(Node* node) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema != nullptr && !schema->is_varret()) {
      if (!schema->returns().empty()) add_schema(node, *schema);
      return;
    }
    // Lists, tuples and dicts hold what they are made of; branches and loops pass values on.
    for (Block* block : node->blocks()) {
      const bool is_loop = node->kind() == prim::Loop;
      const std::size_t skipped = is_loop ? 1 : 0;  // the condition
      for (std::size_t index = skipped; index < block->outputs().size(); ++index) {
        unite(block->outputs()[index], node->outputs()[index - skipped]);
        if (is_loop) {
          unite(node->inputs()[index + 1], node->outputs()[index - skipped]);
          unite(block->inputs()[index], node->outputs()[index - skipped]);
        }
      }
    }
    if (!node->blocks().empty() || node->kind() == prim::Constant) return;
    for (Value* input : node->inputs()) {
      for (Value* output : node->outputs()) unite(input, output);
    }
  }

  void add_schema(Node* node, const c10::FunctionSchema& schema) {
    for (std::size_t result = 0; result < node->outputs().size(); ++result) {
      const std::size_t declared = std::min(result, schema.returns().size() - 1);
      const c10::AliasInfo* made = schema.returns()[declared].alias_info();
      if (made == nullptr) continue;
      for (std::size_t index = 0; index < node->inputs().size(); ++index) {
        if (index >= schema.arguments().size()) break;
        const c10::AliasInfo* given = schema.arguments()[index].alias_info();
        if (given != nullptr && overlap(*given, *made)) {
          unite(node->inputs()[index], node->outputs()[result]);
        }
      }
    }
  }

  static bool overlap(const c10::AliasInfo& given, const c10::AliasInfo& made) {
    const auto has_common = [](const auto& left, const auto& right) {
      for (const auto& name : left) {
        if (right.count(name) != 0) return true;
      }
      return false;
    };
    if (has_common(given.beforeSets(), made.beforeSets())) return true;
    if (has_common(given.afterSets(), made.beforeSets())) return true;
    for (const c10::AliasInfo& inner : made.containedTypes()) {
      if (overlap(given, inner)) return true;
    }
    for (const c10::AliasInfo& inner : given.containedTypes()) {
      if (overlap(inner, made)) return true;
    }
    return false;
  }

  const Value* root(const Value* value) {
    const auto parent = parents_.find(value);
    if (parent == parents_.end()) return value;
    const Value* const top = root(parent->second);
    parents_[value] = top;
    return top;
  }
  void unite(const Value* left, const Value* right) {
    const Value* const from = root(left);
    const Value* const to = root(right);
    if (from != to) parents_[from] = to;
  }

  std::unordered_map<const Value*, const Value*> parents_;
};

std::string name_of(Value* value) {
  return value->node()->kind() == prim::Param ? fmt::format("the input %{}", value->debugName())
                                              : "the result of " + describe_node(value->node());
}

}  // namespace

InPlaceChanges::InPlaceChanges(const CapturedModel& model, const ValueFlow& flow)
    : copies_(static_cast<std::size_t>(flow.num_stages())) {
  SharedMemory memory(*model.graph);
  const auto check = [&](Node* node, Value* written, int stage) {
    for (std::size_t index = 0; index < model.tensors.size(); ++index) {
      Value* const tensor = model.graph->inputs()[model.arguments.size() + index];
      if (flow.stages_with(index).size() < 2 || !memory.is_shared(written, tensor)) continue;
      throw SplitError(
          fmt::format("{} changes {} in place, but other stages use it too; cut the model so that "
                      "one stage has "
                      "all of its uses",
                      describe_node(node), quote(model.tensors[index].name, 200)));
    }
    if (stage == 0) return;
    Value* copied = nullptr;
    for (Value* received : flow.leaving(stage - 1)) {
      if (!memory.is_shared(written, received)) continue;
      if (copied != nullptr) {
        throw SplitError(fmt::format(
            "{} changes {} in place, which shares memory with {}, and both were made in an earlier "
            "stage; move the cut before stage {}, or make the change out of place",
            describe_node(node), name_of(copied), name_of(received), stage));
      }
      copied = received;
      copies_[static_cast<std::size_t>(stage)].insert(received);
    }
  };
  for (Node* node : model.graph->nodes()) {
    for (int stage = 0; stage < flow.num_stages(); ++stage) {
      if (!flow.is_in(node, stage)) continue;
      for_each_node(node, [&](Node* inner) {
        for_each_write(inner, [&](Value* written) { check(inner, written, stage); });
      });
    }
  }
}

}  // namespace penstock
