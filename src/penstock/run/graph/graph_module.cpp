#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/error.h"
#include "penstock/base/one_caller.h"
#include "penstock/base/text.h"
#include "penstock/run/graph/internal/graph_program.h"
#include "penstock/run/graph/internal/move_tensors.h"
#include "penstock/run/graph/internal/rewrite.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  quoted.reserve(names.size());
  for (const std::string& name : names) quoted.push_back(quote(name));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

void require_fit(const StageGraph& stage) {
  if (stage.graph == nullptr) throw ArgumentError("the stage has no graph");
  const std::size_t expected = stage.values.size() + stage.tensors.size() + stage.shared.size();
  if (stage.graph->inputs().size() != expected) {
    throw ArgumentError(fmt::format(
        "the graph of the stage has {}, but there are {}, {} and {} of shared parameters",
        counted(static_cast<long long>(stage.graph->inputs().size()), "input", "inputs"),
        counted(static_cast<long long>(stage.values.size()), "value", "values"),
        counted(static_cast<long long>(stage.tensors.size()), "tensor", "tensors"),
        counted(static_cast<long long>(stage.shared.size()), "use", "uses")));
  }
  if (stage.graph->outputs().size() != 1) {
    throw ArgumentError(fmt::format(
        "the graph of the stage has {}; expected one, a tuple if there are several",
        counted(static_cast<long long>(stage.graph->outputs().size()), "output", "outputs")));
  }
  if (!stage.shared.empty() && stage.claims == nullptr) {
    throw ArgumentError("a stage with shared parameters needs the claims of its model");
  }
  for (const auto* list : {&stage.tensors, &stage.shared}) {
    for (const StageGraph::Tensor& tensor : *list) {
      if (!tensor.tensor.defined()) {
        throw ArgumentError(fmt::format("the tensor {} is undefined", quote(tensor.name)));
      }
    }
  }
}

class GraphModule final : public StageModule {
 public:
  explicit GraphModule(StageGraph stage) : stage_(std::move(stage)) {
    require_fit(stage_);
    program_ = make_program(stage_);
  }

  c10::IValue forward(const std::vector<c10::IValue>& inputs,
                      const KeywordArguments& keywords) override {
    // The scratch of a program is for one run at a time.
    const OneCaller caller(is_running_,
                           "the stage is running already; it takes one microbatch at a time");
    const std::size_t num_shared = stage_.shared.size();
    if (inputs.size() < num_shared) {
      throw ArgumentError(fmt::format("the stage takes {} of shared parameters as last inputs",
                                      counted(static_cast<long long>(num_shared), "use", "uses")));
    }
    const std::span all(inputs);
    const auto given = all.first(inputs.size() - num_shared);
    const auto shared = all.last(num_shared);
    if (keywords.empty() && given.size() == stage_.values.size()) {
      require_fixed(given);
      return program_->run(given, shared);
    }
    const std::vector<c10::IValue> values = bind(given, keywords);
    require_fixed(values);
    return program_->run(values, shared);
  }

  std::vector<std::string> keywords() const override {
    return stage_.takes_keywords ? stage_.values : std::vector<std::string>{};
  }

  NamedTensors named_parameters() const override { return named(false); }
  NamedTensors named_buffers() const override { return named(true); }

  NamedTensors shared_parameters() const override {
    NamedTensors list;
    for (const StageGraph::Tensor& use : stage_.shared) list.emplace_back(use.name, use.tensor);
    return list;
  }
  std::shared_ptr<SharedClaims> shared_claims() const override { return stage_.claims; }

  void train(bool on) override {
    set_training(*stage_.graph, on);
    program_ = make_program(stage_);
  }

  void to(at::Device device) override {
    move_tensors(stage_, device);
    set_device(*stage_.graph, device);
    program_ = make_program(stage_);
  }

 private:
  void require_fixed(std::span<const c10::IValue> values) const {
    if (stage_.fixed.empty()) return;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto fixed = stage_.fixed.find(stage_.values[i]);
      if (fixed == stage_.fixed.end() || equal_values(values[i], fixed->second)) continue;
      throw ArgumentError(fmt::format(
          "the model was captured for {} = {}, but was given {}; capture it again for that",
          stage_.values[i], describe(fixed->second), describe(values[i])));
    }
  }

  // One value for each that the graph takes, by position first, then by name.
  std::vector<c10::IValue> bind(std::span<const c10::IValue> given,
                                const KeywordArguments& keywords) const {
    const std::vector<std::string>& names = stage_.values;
    if (given.size() > names.size()) {
      throw ArgumentError(
          fmt::format("the stage takes {} ({}), but was given {}",
                      counted(static_cast<long long>(names.size()), "input", "inputs"),
                      names_text(names), given.size()));
    }
    require_known(keywords);
    std::vector<c10::IValue> values(given.begin(), given.end());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto keyword = keywords.find(names[i]);
      if (i < given.size()) {
        if (keyword == keywords.end()) continue;
        throw ArgumentError(
            fmt::format("the input {} was given twice, by position and by name", quote(names[i])));
      }
      if (keyword != keywords.end()) {
        values.push_back(keyword->second);
      } else if (const auto found = stage_.defaults.find(names[i]);
                 found != stage_.defaults.end()) {
        values.push_back(found->second);
      } else {
        throw ArgumentError(fmt::format("the input {} is missing; the stage takes {}",
                                        quote(names[i]), names_text(names)));
      }
    }
    return values;
  }

  void require_known(const KeywordArguments& keywords) const {
    const std::vector<std::string> known = this->keywords();
    for (const auto& [name, value] : keywords) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw ArgumentError(
          known.empty()
              ? fmt::format("the stage takes no inputs by name, but was given {}", quote(name))
              : fmt::format("the stage has no input {}; it takes {}", quote(name),
                            names_text(known)));
    }
  }

  NamedTensors named(bool buffers) const {
    NamedTensors list;
    std::unordered_set<const c10::TensorImpl*> listed;
    for (const auto* tensors : {&stage_.tensors, &stage_.shared}) {
      for (const StageGraph::Tensor& tensor : *tensors) {
        if (tensor.is_buffer == buffers &&
            listed.insert(tensor.tensor.unsafeGetTensorImpl()).second) {
          list.emplace_back(tensor.name, tensor.tensor);
        }
      }
    }
    for (const auto& [name, tensor] : stage_.aliases) {
      if (listed.contains(tensor.unsafeGetTensorImpl())) list.emplace_back(name, tensor);
    }
    return list;
  }

  StageGraph stage_;
  std::unique_ptr<GraphProgram> program_;
  std::atomic<bool> is_running_ = false;
};

}  // namespace

std::shared_ptr<StageModule> make_graph_module(StageGraph graph) {
  return std::make_shared<GraphModule>(std::move(graph));
}

}  // namespace penstock
