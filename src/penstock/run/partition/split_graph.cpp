#include "penstock/run/partition/split_graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/split_marker.h"
#include "penstock/run/partition/internal/graph_nodes.h"
#include "penstock/run/partition/internal/in_place.h"
#include "penstock/run/partition/internal/random_sites.h"
#include "penstock/run/partition/internal/value_flow.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

void require_sendable(const CapturedModel& model, const ValueFlow& flow) {
  for (int stage = 0; stage + 1 < flow.num_stages(); ++stage) {
    for (Value* value : flow.leaving(stage)) {
      if (can_be_sent(*value->type())) continue;
      const auto inputs = model.graph->inputs();
      const auto input = std::find(inputs.begin(), inputs.end(), value);
      const std::string origin =
          input == inputs.end()
              ? "which " + describe_node(value->node()) + " makes"
              : "the input " +
                    quote(model.arguments[static_cast<std::size_t>(input - inputs.begin())].name);
      throw SplitError(fmt::format(
          "a value of type {}, {}, would have to go from stage {} to stage {}; only tensors, "
          "numbers and lists of numbers can, so move the cut",
          value->type()->str(), origin, stage, stage + 1));
    }
  }
}

// A region such as that of torch.no_grad() changes how its thread computes until it ends.
void require_whole_regions(const CapturedModel& model, const ValueFlow& flow) {
  for (Node* exit : model.graph->nodes()) {
    if (exit->kind() != prim::Exit) continue;
    Value* const context = exit->input(0);
    for (const torch::jit::Use& use : context->uses()) {
      if (use.user->kind() != prim::Enter) continue;
      for (int stage = 0; stage < flow.num_stages(); ++stage) {
        if (flow.is_in(exit, stage) == flow.is_in(use.user, stage)) continue;
        throw SplitError(fmt::format(
            "the model is cut inside of a \"with\" block that begins {}; move the cut out of it",
            module_path_of(use.user).empty() ? "in its forward"
                                             : "in " + module_path_of(use.user)));
      }
    }
  }
}

class StageBuilder {
 public:
  StageBuilder(const CapturedModel& model, const ValueFlow& flow, const InPlaceChanges& changes,
               const RandomSites& sites, int stage)
      : model_(model), flow_(flow), changes_(changes), sites_(sites), stage_(stage) {
    result_.graph = std::make_shared<Graph>();
  }

  StageGraph build() {
    add_values();
    add_tensors();
    add_shared();
    copy_changed();
    for (Node* node : model_.graph->nodes()) {
      if (flow_.is_in(node, stage_)) add(node);
    }
    add_output();
    result_.graph->lint();
    return std::move(result_);
  }

 private:
  bool is_last() const { return stage_ + 1 == flow_.num_stages(); }

  Value* add_input(Value* value) {
    Value* const input = result_.graph->addInput();
    input->copyMetadata(value);
    return input;
  }

  void add_values() {
    if (stage_ > 0) {
      for (Value* value : flow_.leaving(stage_ - 1)) {
        result_.values.push_back(value->debugName());
        values_[value] = add_input(value);
      }
      return;
    }
    result_.takes_keywords = true;
    for (std::size_t index = 0; index < model_.arguments.size(); ++index) {
      const CapturedModel::Argument& argument = model_.arguments[index];
      Value* const value = model_.graph->inputs()[index];
      result_.values.push_back(argument.name);
      values_[value] = add_input(value);
      if (argument.default_value) result_.defaults.emplace(argument.name, *argument.default_value);
      if (argument.fixed_value) {
        result_.fixed.emplace(argument.name, *argument.fixed_value);
        result_.defaults.emplace(argument.name, *argument.fixed_value);
      }
    }
  }

  Value* value_of(std::size_t tensor) const {
    return model_.graph->inputs()[model_.arguments.size() + tensor];
  }

  // visit(index) for the tensors that this stage has, alone or with others.
  template <typename Visit>
  void for_each_tensor(bool with_others, const Visit& visit) const {
    for (std::size_t index = 0; index < model_.tensors.size(); ++index) {
      const auto& stages = flow_.stages_with(index);
      const bool is_shared = stages.size() > 1 && !model_.tensors[index].is_buffer;
      if (stages.contains(stage_) && is_shared == with_others) visit(index);
    }
  }

  void add_tensors() {
    for_each_tensor(false, [this](std::size_t index) {
      const CapturedModel::Tensor& tensor = model_.tensors[index];
      values_[value_of(index)] = add_input(value_of(index));
      result_.tensors.push_back({tensor.name, tensor.tensor, tensor.is_buffer});
      add_aliases(tensor);
    });
  }

  // One input per node that uses the parameter, so that the gradient of each use is known alone.
  void add_shared() {
    for_each_tensor(true, [this](std::size_t index) {
      const CapturedModel::Tensor& tensor = model_.tensors[index];
      Value* const value = value_of(index);
      for (Node* node : model_.graph->nodes()) {
        bool is_used = false;
        if (flow_.is_in(node, stage_)) {
          for_each_read(node, [&](Value* read) { is_used |= read == value; });
        }
        if (!is_used) continue;
        uses_[node].emplace_back(value, add_input(value));
        result_.shared.push_back({tensor.name, tensor.tensor, false});
      }
      if (is_last() && model_.graph->outputs()[0] == value) {
        values_[value] = add_input(value);
        result_.shared.push_back({tensor.name, tensor.tensor, false});
      }
      add_aliases(tensor);
    });
  }

  void add_aliases(const CapturedModel::Tensor& tensor) {
    for (const CapturedModel::Alias& alias : model_.aliases) {
      if (alias.names == tensor.name) result_.aliases.emplace_back(alias.name, tensor.tensor);
    }
  }

  void copy_changed() {
    if (stage_ == 0) return;
    Graph& graph = *result_.graph;
    for (Value* received : flow_.leaving(stage_ - 1)) {
      if (!changes_.needs_copy(stage_, received)) continue;
      Value* const none = graph.insertConstant(c10::IValue());
      Value*& value = values_.at(received);
      Node* const copy = graph.create(c10::Symbol::fromQualString("aten::clone"), {value, none});
      copy->output()->setType(value->type());
      value = graph.insertNode(copy)->output();
    }
  }

  void add(Node* node) {
    const auto uses = uses_.find(node);
    Node* const clone = result_.graph->createClone(node, [&](Value* value) {
      if (uses != uses_.end()) {
        for (const auto& [shared, input] : uses->second) {
          if (shared == value) return input;
        }
      }
      return values_.at(value);
    });
    result_.graph->insertNode(clone);
    for (std::size_t index = 0; index < node->outputs().size(); ++index) {
      values_[node->outputs()[index]] = clone->outputs()[index];
    }
    sites_.copy(node, clone, result_.random_sites);
    if (is_without_gradients(node)) cut_gradients(node, clone);
  }

  // Makes `clone` compute as it does where gradients are switched off.
  void cut_gradients(Node* node, Node* clone) {
    const auto detached = [this](Value* value) {
      Node* const detach =
          result_.graph->create(c10::Symbol::fromQualString("aten::detach"), {value});
      detach->output()->setType(value->type());
      return detach;
    };
    const auto is_tensor = [](Value* value) {
      return value->type()->kind() == c10::TypeKind::TensorType;
    };
    // What was changed in place stays the tensor it was, with its own history.
    for_each_write(clone, [&](Value* written) {
      for (Value* output : node->outputs()) values_[output] = written;
    });
    for (std::size_t index = 0; index < clone->inputs().size(); ++index) {
      Value* const input = clone->inputs()[index];
      if (!is_tensor(input)) continue;
      clone->replaceInput(index, detached(input)->insertBefore(clone)->output());
    }
    Node* last = clone;
    for (std::size_t index = 0; index < clone->outputs().size(); ++index) {
      Value* const output = clone->outputs()[index];
      if (!is_tensor(output) || values_.at(node->outputs()[index]) != output) continue;
      last = detached(output)->insertAfter(last);
      values_[node->outputs()[index]] = last->output();
    }
  }

  void add_output() {
    if (is_last()) {
      result_.graph->registerOutput(values_.at(model_.graph->outputs()[0]));
      return;
    }
    std::vector<Value*> leaving;
    for (Value* value : flow_.leaving(stage_)) leaving.push_back(values_.at(value));
    Node* const tuple = result_.graph->createTuple(leaving);
    result_.graph->registerOutput(result_.graph->insertNode(tuple)->output());
  }

  const CapturedModel& model_;
  const ValueFlow& flow_;
  const InPlaceChanges& changes_;
  const RandomSites& sites_;
  int stage_;
  StageGraph result_;
  std::unordered_map<const Value*, Value*> values_;  // of the model to those of the stage
  // Of nodes that use shared parameters: the parameter, and the input that stands for it here.
  std::unordered_map<const Node*, std::vector<std::pair<Value*, Value*>>> uses_;
};

void require_known_parameters(const CapturedModel& model, const SplitGraphOptions& options) {
  std::vector<std::string_view> names;
  for (const CapturedModel::Tensor& tensor : model.tensors) names.push_back(tensor.name);
  for (const auto& [name, rule] : options.multi_use_of) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string_view nearest = nearest_name(name, names);
    throw ArgumentError(
        fmt::format("the model has no parameter {}{}", quote(name, 200),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest, 200))));
  }
}

}  // namespace

std::vector<StageGraph> split_graph(const CapturedModel& model, const CutPositions& cuts,
                                    const SplitGraphOptions& options) {
  for (Node* node : model.graph->nodes()) {
    for_each_node(node, [node](Node* inner) {
      if (inner == node || !is_split_marker(inner)) return;
      throw SplitError(fmt::format(
          "pipe_split() is called inside of a branch or a loop ({}), where a model cannot be cut; "
          "call it outside",
          describe_node(node)));
    });
  }
  require_known_parameters(model, options);
  const ValueFlow flow(model, cuts, options);
  require_sendable(model, flow);
  require_whole_regions(model, flow);
  const InPlaceChanges changes(model, flow);
  const RandomSites sites(*model.graph);
  const auto claims = std::make_shared<SharedClaims>();
  std::vector<StageGraph> stages;
  std::vector<SharedPlace> uses;
  for (int stage = 0; stage < flow.num_stages(); ++stage) {
    stages.push_back(StageBuilder(model, flow, changes, sites, stage).build());
    stages.back().claims = claims;
    for (const StageGraph::Tensor& use : stages.back().shared) uses.push_back({stage, use.name});
  }
  claims->set_uses(std::move(uses));
  return stages;
}

}  // namespace penstock
