#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <torch/nn/module.h>

namespace penstock {

// A model together with its loss, so that the loss is computed inside of the pipeline and targets
// are inputs like others. Derive from it and write a forward that returns the loss, alone or among
// other outputs; loss_in_output() tells a schedule where it is.
template <typename Module>
class LossWrapper : public torch::nn::Module {
 public:
  using LossFunctionOfTensors = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

  LossWrapper(std::shared_ptr<Module> module, LossFunctionOfTensors loss_function)
      : module_(register_module("module", std::move(module))),
        loss_function_(std::move(loss_function)) {}

 protected:
  Module& module() { return *module_; }
  at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) const {
    return loss_function_(output, target);
  }

 private:
  std::shared_ptr<Module> module_;
  LossFunctionOfTensors loss_function_;
};

// forward(input, target) is the loss of the model's output.
template <typename Module>
class TrivialLossWrapper final : public LossWrapper<Module> {
 public:
  using LossWrapper<Module>::LossWrapper;

  at::Tensor forward(const at::Tensor& input, const at::Tensor& target) {
    return this->loss_of(this->module().forward(input), target);
  }
};

}  // namespace penstock
