#include "penstock/run/stage/pipeline_stage.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <unordered_set>

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/stage/shared_claims.h"

namespace penstock {
namespace {

bool is_list_of_numbers(const c10::IValue& value) {
  return value.isIntList() || value.isDoubleList() || value.isBoolList();
}

bool can_be_sent(const c10::IValue& value) {
  return value.isTensor() || value.isNone() || value.isInt() || value.isDouble() ||
         value.isBool() || is_list_of_numbers(value);
}

// Messages between stages are flat: a tuple or list is its elements, anything else, a list of
// numbers too, is one value.
template <typename Visit>
void for_each_value(const c10::IValue& output, const Visit& visit) {
  if (output.isTuple()) {
    for (const c10::IValue& element : output.toTupleRef().elements()) visit(element);
  } else if (output.isList() && !is_list_of_numbers(output)) {
    for (const c10::IValue& element : output.toListRef()) visit(element);
  } else {
    visit(output);
  }
}

// What to do about an error of libtorch that speaks of its own matters.
std::string_view advice_on(std::string_view cause) {
  const bool is_in_place = cause.find("a leaf Variable that requires grad") != cause.npos;
  return is_in_place
             ? "; the inputs of a stage are such leaves, so let its first operator work out "
               "of place, as in relu() instead of relu_(), or clone the input"
             : "";
}

// A leaf that shares the tensor's memory but none of its history.
at::Tensor leaf_of(const at::Tensor& tensor) {
  at::Tensor leaf = tensor.detach();
  if (tensor.requires_grad()) leaf.set_requires_grad(true);
  return leaf;
}

}  // namespace

PipelineStage::PipelineStage(std::shared_ptr<StageModule> module, StagePosition position)
    : module_(std::move(module)), position_(std::move(position)) {
  if (module_ == nullptr) throw ArgumentError("a stage needs a module");
  if (index() < 0 || index() >= num_stages()) {
    throw ArgumentError(fmt::format("stage {} is not one of {}; stages are numbered from 0",
                                    index(), counted(num_stages(), "stage", "stages")));
  }
  parameters();  // claims those that are shared
}

void PipelineStage::set_parameter_actions(std::shared_ptr<ParameterActions> actions) {
  parameter_actions_ = std::move(actions);
}

std::vector<at::Tensor> PipelineStage::parameters() const {
  if (parameter_actions_ != nullptr && parameter_actions_->is_sharded()) {
    return parameter_actions_->parameters();
  }
  std::vector<at::Tensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : module_->shared_parameters()) {
    if (!module_->shared_claims()->claim(tensor, module_))
      seen.insert(tensor.unsafeGetTensorImpl());
  }
  for (auto& [name, tensor] : module_->named_parameters()) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) parameters.push_back(tensor);
  }
  return parameters;
}

void PipelineStage::begin_step(const Step& step) {
  step_ = step;
  end_step();
  shared_ = module_->shared_parameters();
  PENSTOCK_ASSERT(shared_.empty() || !step.is_training || step.shared_gradients != nullptr,
                  "somebody adds up the gradients of shared parameters");
  run_of_microbatch_.assign(static_cast<std::size_t>(step.num_microbatches), nullptr);
  if (parameter_actions_ != nullptr) parameter_actions_->begin_step(step.is_training);
}

void PipelineStage::end_step() {
  for (std::size_t microbatch = 0; microbatch < run_of_microbatch_.size(); ++microbatch) {
    if (run_of_microbatch_[microbatch] != nullptr) close(static_cast<int>(microbatch));
  }
  root_gradients_.clear();
  // A call that has thrown leaves its scratch full.
  tensors_.clear();
  gradients_.clear();
  module_inputs_.clear();
  forget_keywords();
  if (parameter_actions_ != nullptr) parameter_actions_->end_step();
}

void PipelineStage::forget_keywords() {
  for (auto& [name, value] : root_keywords_) value = c10::IValue();  // the names are kept
}

void PipelineStage::unshard() {
  if (parameter_actions_ != nullptr) parameter_actions_->unshard();
}

void PipelineStage::await_parameters() {
  if (parameter_actions_ != nullptr) parameter_actions_->await_parameters();
}

void PipelineStage::reshard() {
  if (parameter_actions_ != nullptr) parameter_actions_->reshard();
}

void PipelineStage::reduce_gradients() {
  if (parameter_actions_ != nullptr) parameter_actions_->reduce_gradients();
}

void PipelineStage::require_final_gradients() const {
  if (parameter_actions_ != nullptr) parameter_actions_->require_final_gradients();
}

PipelineStage::Run& PipelineStage::open(int microbatch) {
  if (microbatch < 0 || microbatch >= step_.num_microbatches) {
    throw StageError(fmt::format(
        "forward of microbatch {} on stage {}: the step has {}, numbered from 0", microbatch,
        index(), counted(step_.num_microbatches, "microbatch", "microbatches")));
  }
  if (run_of_microbatch_[static_cast<std::size_t>(microbatch)] != nullptr) {
    throw StageError(
        fmt::format("forward of microbatch {} on stage {}: it has run already, and its backward "
                    "has not",
                    microbatch, index()));
  }
  if (free_runs_.empty()) {
    runs_.push_back(std::make_unique<Run>());
    free_runs_.push_back(runs_.back().get());
  }
  Run* run = free_runs_.back();
  free_runs_.pop_back();
  run_of_microbatch_[static_cast<std::size_t>(microbatch)] = run;
  ++num_live_;
  return *run;
}

PipelineStage::Run& PipelineStage::run_of(int microbatch, const char* action) {
  Run* run = microbatch >= 0 && microbatch < step_.num_microbatches
                 ? run_of_microbatch_[static_cast<std::size_t>(microbatch)]
                 : nullptr;
  if (run == nullptr) {
    throw StageError(
        fmt::format("{} of microbatch {} on stage {}: its forward has not run, or it "
                    "is finished already",
                    action, microbatch, index()));
  }
  return *run;
}

void PipelineStage::close(int microbatch) {
  Run*& run = run_of_microbatch_[static_cast<std::size_t>(microbatch)];
  run->graph.reset();
  run->leaves.clear();
  run->sources.clear();
  run->shared.clear();
  free_runs_.push_back(run);
  run = nullptr;
  --num_live_;
}

void PipelineStage::add_leaves(Run& run, const Message& inputs) {
  for (const c10::IValue& input : inputs) {
    run.leaves.push_back(input.isTensor() ? input.toTensor() : at::Tensor());
  }
  run.num_message_leaves = inputs.size();
}

// Replaces tensors that belong to an autograd graph of the caller by leaves, so that the pipeline
// ends here and the caller's graph is run backward once, when the step is over.
c10::IValue PipelineStage::cut(Run& run, const c10::IValue& value) {
  return map_tensors(value, [&run](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    // With a version counter of its own: microbatches are views of one tensor, and what one of
    // them does in place to its rows must not look like a change to the others.
    at::Tensor leaf = tensor.variable_data();
    if (!tensor.requires_grad()) return leaf;
    leaf.set_requires_grad(true);
    run.leaves.push_back(leaf);
    run.sources.push_back(tensor);
    return leaf;
  });
}

// An alias for each use, so that the gradient of each is known apart. To the backward it is a
// parameter like any other.
at::Tensor PipelineStage::alias_of_shared(Run& run, const at::Tensor& parameter) {
  const bool needs_gradient = parameter.requires_grad();
  run.shared.push_back(needs_gradient ? leaf_of(parameter) : at::Tensor());
  return needs_gradient ? run.shared.back() : parameter;
}

c10::IValue PipelineStage::forward(int microbatch, const Message& inputs,
                                   const KeywordArguments& keywords) {
  if (parameter_actions_ != nullptr) parameter_actions_->require_parameters();
  const Message* module_inputs = &inputs;
  const KeywordArguments* module_keywords = &keywords;
  const auto own_inputs = [&]() -> Message& {
    if (module_inputs != &module_inputs_) module_inputs_.assign(inputs.begin(), inputs.end());
    module_inputs = &module_inputs_;
    return module_inputs_;
  };
  Run* run = nullptr;
  if (step_.is_training) {
    run = &open(microbatch);
    run->num_message_leaves = 0;
    if (!is_first()) {
      add_leaves(*run, inputs);
    } else {
      for (c10::IValue& input : own_inputs()) input = cut(*run, input);
    }
    if (!keywords.empty()) {
      std::erase_if(root_keywords_,
                    [&keywords](const auto& entry) { return !keywords.contains(entry.first); });
      for (const auto& [name, value] : keywords) {
        root_keywords_.insert_or_assign(name, cut(*run, value));
      }
      module_keywords = &root_keywords_;
    }
  }
  for (const auto& [name, parameter] : shared_) {
    own_inputs().emplace_back(run != nullptr ? alias_of_shared(*run, parameter) : parameter);
  }
  try {
    c10::IValue output = module_->forward(*module_inputs, *module_keywords);
    module_inputs_.clear();
    forget_keywords();
    return output;
  } catch (const std::exception& error) {
    std::string given = describe(c10::ivalue::Tuple::create(inputs));
    for (const auto& [name, value] : keywords)
      given += fmt::format(", {}={}", name, describe(value));
    const std::string cause = cause_of(error);
    throw StageError(fmt::format("the module of stage {} failed on inputs {}: {}{}", index(), given,
                                 cause, advice_on(cause)));
  }
}

void PipelineStage::keep_outputs(int microbatch, const c10::IValue& output, Message& message) {
  message.clear();
  tensors_.clear();
  for_each_value(output, [&](const c10::IValue& value) {
    if (!can_be_sent(value)) {
      throw StageError(
          fmt::format("stage {} returned {}; a stage that is not the last must return a tensor, or "
                      "a flat tuple or list of tensors, None, numbers and lists of numbers",
                      index(), describe(output)));
    }
    if (!value.isTensor()) {
      message.push_back(value);
    } else {
      message.emplace_back(leaf_of(value.toTensor()));
    }
    if (step_.is_training) tensors_.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  });
  if (!step_.is_training) return;
  Run& run = run_of(microbatch, "keeping the outputs");
  run.graph.record(tensors_, run.leaves);
  tensors_.clear();
}

void PipelineStage::keep_loss(int microbatch, const at::Tensor& loss) {
  Run& run = run_of(microbatch, "keeping the loss");
  run.graph.record({&loss, 1}, run.leaves);
}

std::span<const at::Tensor> PipelineStage::seeds_of(const Message& gradients) {
  tensors_.clear();
  for (const c10::IValue& gradient : gradients) {
    tensors_.push_back(gradient.isTensor() ? gradient.toTensor() : at::Tensor());
  }
  return tensors_;
}

void PipelineStage::hand_back(Run& run, Message& input_gradients) {
  tensors_.clear();
  PENSTOCK_ASSERT(gradients_.size() == run.leaves.size(), "one gradient per input");
  input_gradients.clear();
  for (std::size_t leaf = 0; leaf < run.num_message_leaves; ++leaf) {
    input_gradients.emplace_back(std::move(gradients_[leaf]));
  }
  for (std::size_t source = 0; source < run.sources.size(); ++source) {
    at::Tensor& gradient = gradients_[run.num_message_leaves + source];
    if (gradient.defined()) {
      root_gradients_.push_back({std::move(run.sources[source]), std::move(gradient)});
    }
  }
  gradients_.clear();
}

void PipelineStage::hand_over_shared(Run& run, int microbatch) const {
  if (run.shared.empty()) return;
  for (at::Tensor& alias : run.shared) {
    if (!alias.defined()) continue;
    at::Tensor gradient = std::move(alias.mutable_grad());
    alias = std::move(gradient);
  }
  step_.shared_gradients->add(index(), microbatch, run.shared);
}

// What a backward that adds to the gradients of parameters needs of them.
void PipelineStage::require_open_parameters() {
  if (parameter_actions_ == nullptr) return;
  parameter_actions_->require_parameters();
  parameter_actions_->expect_gradients();
}

void PipelineStage::backward(int microbatch, const Message& gradients, Message& input_gradients) {
  Run& run = run_of(microbatch, "backward");
  require_open_parameters();
  run.graph.backward(seeds_of(gradients), gradients_);
  hand_back(run, input_gradients);
  hand_over_shared(run, microbatch);
  close(microbatch);
}

void PipelineStage::backward_input(int microbatch, const Message& gradients,
                                   Message& input_gradients) {
  Run& run = run_of(microbatch, "backward");
  if (parameter_actions_ != nullptr) parameter_actions_->require_parameters();
  run.graph.backward_input(seeds_of(gradients), gradients_);
  hand_back(run, input_gradients);
  run.leaves.clear();
}

void PipelineStage::backward_weight(int microbatch) {
  Run& run = run_of(microbatch, "weight backward");
  require_open_parameters();
  run.graph.backward_weight(step_.weight_gradients);
  hand_over_shared(run, microbatch);
  close(microbatch);
}

}  // namespace penstock
