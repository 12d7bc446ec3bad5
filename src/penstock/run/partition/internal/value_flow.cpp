#include "penstock/run/partition/internal/value_flow.h"

#include <algorithm>
#include <unordered_set>

#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/split_marker.h"
#include "penstock/run/partition/internal/graph_nodes.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Node;
using torch::jit::Value;

bool is_written_to(Value* value) {
  bool is_written = false;
  for (const torch::jit::Use& use : value->uses()) {
    for_each_write(use.user, [&](Value* written) { is_written |= written == value; });
  }
  return is_written;
}

}  // namespace

bool can_be_sent(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) {
    return can_be_sent(*optional->getElementType());
  }
  const auto is_number = [](const c10::Type& element) {
    return element.kind() == c10::TypeKind::IntType || element.kind() == c10::TypeKind::FloatType ||
           element.kind() == c10::TypeKind::BoolType;
  };
  if (const auto* list = type.castRaw<c10::ListType>()) return is_number(*list->getElementType());
  return type.kind() == c10::TypeKind::TensorType || type.kind() == c10::TypeKind::NoneType ||
         type.kind() == c10::TypeKind::NumberType || is_number(type);
}

ValueFlow::ValueFlow(const CapturedModel& model, const CutPositions& cuts,
                     const SplitGraphOptions& options)
    : model_(model) {
  for (std::size_t index = 0; index < model.arguments.size(); ++index) {
    homes_[model.graph->inputs()[index]] = 0;
  }
  place_nodes(cuts);
  place_uses();
  place_tensors(options);
  find_leaving();
}

bool ValueFlow::is_in(Node* node, int stage) const {
  const auto stages = stages_of_.find(node);
  return stages != stages_of_.end() && stages->second.contains(stage);
}

int ValueFlow::home_of(Node* node) const {
  if (is_split_marker(node) || is_made_where_used(node)) return kNoHome;
  return *stages_of_.at(node).begin();
}

bool ValueFlow::is_made_where_used(Node* node) {
  if (node->kind() == prim::Constant) return true;
  const bool is_construct = node->kind() == prim::ListConstruct ||
                            node->kind() == prim::TupleConstruct ||
                            node->kind() == prim::DictConstruct;
  return is_construct && !is_written_to(node->output());
}

// Takes one value out of a list, tuple or dict. Done where that was made: it need not be sent
// whole.
bool ValueFlow::is_unpacking(Node* node) const {
  const bool has_kind = node->kind() == prim::ListUnpack || node->kind() == prim::TupleUnpack ||
                        node->kind() == prim::TupleIndex ||
                        node->kind() == c10::Symbol::fromQualString("aten::__getitem__");
  if (!has_kind || !homes_.contains(node->inputs()[0])) return false;
  return std::all_of(node->inputs().begin() + 1, node->inputs().end(),
                     [](Value* key) { return key->node()->kind() == prim::Constant; });
}

void ValueFlow::place_nodes(const CutPositions& cuts) {
  const std::unordered_set<const Node*> cut_before(cuts.begin(), cuts.end());
  int stage = 0;
  bool is_empty = true;
  bool ends_here = false;
  for (Node* node : model_.graph->nodes()) {
    ends_here |= cut_before.contains(node) || is_split_marker(node);
    if (is_split_marker(node) || is_made_where_used(node)) continue;
    int home = stage;
    if (is_unpacking(node)) {
      home = homes_.at(node->inputs()[0]);
    } else {
      if (ends_here && !is_empty) home = ++stage;
      ends_here = false;
      is_empty = false;
    }
    stages_of_[node] = {home};
    for (const Value* output : node->outputs()) homes_[output] = home;
  }
  num_stages_ = stage + 1;
}

void ValueFlow::use(Value* value, int stage) {
  uses_[value].insert(stage);
  Node* const node = value->node();
  if (!is_made_where_used(node) || !stages_of_[node].insert(stage).second) return;
  for (Value* input : node->inputs()) use(input, stage);
}

void ValueFlow::place_uses() {
  for (Node* node : model_.graph->nodes()) {
    const int stage = home_of(node);
    if (stage == kNoHome) continue;
    for_each_read(node, [&](Value* value) { use(value, stage); });
  }
  for (Value* output : model_.graph->outputs()) use(output, num_stages_ - 1);
}

void ValueFlow::place_tensors(const SplitGraphOptions& options) {
  for (std::size_t index = 0; index < model_.tensors.size(); ++index) {
    const CapturedModel::Tensor& tensor = model_.tensors[index];
    Value* const value = model_.graph->inputs()[model_.arguments.size() + index];
    std::set<int> stages = uses_[value];
    if (stages.empty()) stages = {0};
    const auto rule = options.multi_use_of.find(tensor.name);
    const MultiUse multi_use =
        rule != options.multi_use_of.end() ? rule->second : options.multi_use;
    if (!tensor.is_buffer && multi_use == MultiUse::Transmit) {
      homes_[value] = *stages.begin();
      stages = {*stages.begin()};
    }
    stages_with_.push_back(std::move(stages));
  }
}

void ValueFlow::find_leaving() {
  leaving_.resize(static_cast<std::size_t>(num_stages_));
  const auto pass_on = [this](Value* value) {
    const auto home = homes_.find(value);
    const auto uses = uses_.find(value);
    if (home == homes_.end() || uses == uses_.end() || uses->second.empty()) return;
    for (int stage = home->second; stage < *uses->second.rbegin(); ++stage) {
      leaving_[static_cast<std::size_t>(stage)].push_back(value);
    }
  };
  for (Value* input : model_.graph->inputs()) pass_on(input);
  for (Node* node : model_.graph->nodes()) {
    for (Value* output : node->outputs()) pass_on(output);
  }
}

}  // namespace penstock
