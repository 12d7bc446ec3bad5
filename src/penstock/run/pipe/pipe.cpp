#include "penstock/run/pipe/pipe.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/nn/modules/container/sequential.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/capture/script.h"
#include "penstock/run/stage/stage_layout.h"

namespace penstock {
namespace {

PipeInfo::Stage describe_stage(const StageModule& module) {
  PipeInfo::Stage stage;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : module.named_parameters()) {
    stage.parameters.push_back(name);
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      stage.parameter_bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  for (const auto& [name, tensor] : module.named_buffers()) stage.buffers.push_back(name);
  return stage;
}

std::vector<std::uint64_t> layouts_of(const std::vector<std::shared_ptr<StageModule>>& modules) {
  std::vector<std::uint64_t> layouts;
  layouts.reserve(modules.size());
  for (const auto& module : modules) layouts.push_back(layout_of(*module));
  return layouts;
}

CutPositions cuts_of(const CapturedModel& model, const Microbatch& example,
                     const PipeOptions& options) {
  if (!options.split_spec.empty() && options.split_policy) {
    throw ArgumentError("both a split spec and a split policy say where to cut; give one of them");
  }
  if (options.split_policy) return options.split_policy(model, example);
  return cuts_of_spec(model, options.split_spec);
}

Pipe cut(const CapturedModel& model, const Microbatch& example, const PipeOptions& options) {
  return Pipe(split_graph(model, cuts_of(model, example, options), options.graph));
}

NamedTensors joined(const std::vector<std::shared_ptr<StageModule>>& modules,
                    NamedTensors (StageModule::*tensors_of)() const) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& module : modules) {
    for (auto& [name, tensor] : ((*module).*tensors_of)()) tensors.emplace(name, tensor);
  }
  return {tensors.begin(), tensors.end()};
}

}  // namespace

Pipe::Pipe(std::vector<StageGraph> stages) {
  std::set<std::string> shared;
  std::vector<std::vector<std::string>> inputs;
  for (StageGraph& stage : stages) {
    inputs.push_back(stage.values);
    graphs_.push_back(stage.graph->toString(/*print_source_locations=*/false));
    for (const StageGraph::Tensor& tensor : stage.shared) shared.insert(tensor.name);
    modules_.push_back(make_graph_module(std::move(stage)));
  }
  for (std::size_t index = 0; index < modules_.size(); ++index) {
    info_.stages.push_back(describe_stage(*modules_[index]));
    info_.stages.back().inputs = inputs[index];
    if (index + 1 < inputs.size()) info_.stages.back().outputs = inputs[index + 1];
  }
  info_.shared_parameters.assign(shared.begin(), shared.end());
  layouts_ = layouts_of(modules_);
}

Pipe::Pipe(std::vector<std::shared_ptr<StageModule>> stages) : modules_(std::move(stages)) {
  if (modules_.empty()) throw ArgumentError("a pipe needs at least one stage");
  for (const auto& module : modules_) info_.stages.push_back(describe_stage(*module));
  layouts_ = layouts_of(modules_);
}

std::shared_ptr<StageModule> Pipe::stage_module(int index) const {
  if (index < 0 || index >= num_stages()) {
    throw ArgumentError(fmt::format("there is no stage {}; the pipe has {}, numbered from 0", index,
                                    counted(num_stages(), "stage", "stages")));
  }
  return modules_[static_cast<std::size_t>(index)];
}

std::shared_ptr<PipelineStage> Pipe::build_stage(int index,
                                                 std::optional<at::Device> device) const {
  std::shared_ptr<StageModule> module = stage_module(index);
  if (device) module->to(*device);
  return std::make_shared<PipelineStage>(std::move(module),
                                         StagePosition{index, num_stages(), layouts_});
}

std::vector<std::shared_ptr<PipelineStage>> Pipe::build_stages(
    std::optional<at::Device> device) const {
  std::vector<std::shared_ptr<PipelineStage>> stages;
  stages.reserve(modules_.size());
  for (int index = 0; index < num_stages(); ++index) stages.push_back(build_stage(index, device));
  return stages;
}

c10::IValue Pipe::forward(std::vector<c10::IValue> inputs, const KeywordArguments& keywords) const {
  c10::IValue output;
  for (std::size_t index = 0; index < modules_.size(); ++index) {
    for (const auto& [name, tensor] : modules_[index]->shared_parameters()) {
      inputs.emplace_back(tensor);
    }
    output = modules_[index]->forward(inputs, index == 0 ? keywords : KeywordArguments{});
    if (index + 1 == modules_.size()) break;
    if (output.isTuple()) {
      inputs = output.toTupleRef().elements().vec();
    } else {
      inputs = {output};
    }
  }
  return output;
}

NamedTensors Pipe::named_parameters() const {
  return joined(modules_, &StageModule::named_parameters);
}

NamedTensors Pipe::named_buffers() const {
  return joined(modules_, &StageModule::named_buffers);
}

std::vector<at::Tensor> Pipe::parameters() const {
  std::vector<at::Tensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (auto& [name, tensor] : named_parameters()) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) parameters.push_back(tensor);
  }
  return parameters;
}

void Pipe::train(bool on) {
  for (const auto& module : modules_) module->train(on);
}

std::string to_string(const Pipe& pipe) {
  std::string text = fmt::format("pipe of {}\n", counted(pipe.num_stages(), "stage", "stages"));
  if (!pipe.info_.shared_parameters.empty()) {
    text +=
        fmt::format("used by several stages: {}\n", fmt::join(pipe.info_.shared_parameters, ", "));
  }
  for (std::size_t index = 0; index < pipe.info_.stages.size(); ++index) {
    const PipeInfo::Stage& stage = pipe.info_.stages[index];
    text += fmt::format("\nstage {}\n", index);
    if (!stage.inputs.empty()) text += fmt::format("  in: {}\n", fmt::join(stage.inputs, ", "));
    if (!stage.parameters.empty()) {
      text += fmt::format("  parameters ({} bytes): {}\n", stage.parameter_bytes,
                          fmt::join(stage.parameters, ", "));
    }
    if (!stage.buffers.empty())
      text += fmt::format("  buffers: {}\n", fmt::join(stage.buffers, ", "));
    if (!stage.outputs.empty()) text += fmt::format("  out: {}\n", fmt::join(stage.outputs, ", "));
    if (index < pipe.graphs_.size()) text += pipe.graphs_[index];
  }
  return text;
}

Pipe pipeline(const TraceSource& model, const std::vector<c10::IValue>& example_args,
              const PipeOptions& options) {
  const CapturedModel captured = trace_model(
      model, example_args,
      {.example_kwargs = options.example_kwargs, .argument_names = options.argument_names});
  return cut(captured, {example_args, options.example_kwargs}, options);
}

Pipe pipeline(const torch::jit::Module& model, const std::vector<c10::IValue>& example_args,
              const PipeOptions& options) {
  if (!options.argument_names.empty()) {
    throw ArgumentError("a TorchScript model has names for its arguments already");
  }
  return cut(capture_script(model), {example_args, options.example_kwargs}, options);
}

Pipe pipeline(const std::shared_ptr<torch::nn::SequentialImpl>& model,
              const std::vector<c10::IValue>& example_args, const PipeOptions& options) {
  const auto forward = [model = model.get(), names = model->named_children().keys()](
                           const std::vector<c10::IValue>& inputs,
                           const KeywordArguments& keywords) -> c10::IValue {
    require_inputs(1, inputs.size(), keywords);
    at::Tensor hidden = inputs[0].toTensor();
    auto name = names.begin();
    for (torch::nn::AnyModule& child : *model) {
      const ModuleScope scope(*name++);
      hidden = child.forward(hidden);
    }
    return hidden;
  };
  return pipeline(TraceSource{forward, model}, example_args, options);
}

}  // namespace penstock
