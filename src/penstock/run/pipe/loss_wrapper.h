#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <torch/nn/module.h>

namespace penstock {

// A model together with its loss, so that the loss is computed inside of the pipeline and targets
// are inputs like others. Derive from it and write a forward that returns the loss, alone or among
// other outputs; loss_in_output() tells a schedule where it is.
template <typename Model>
class LossWrapper : public torch::nn::Module {
 public:
  using LossFunctionOfTensors = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

  LossWrapper(std::shared_ptr<Model> module, LossFunctionOfTensors loss_function)
      : module_(register_module("module", std::move(module))),
        loss_function_(std::move(loss_function)) {}

 protected:
  Model& module() { return *module_; }
  at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) const {
    return loss_function_(output, target);
  }

 private:
  std::shared_ptr<Model> module_;
  LossFunctionOfTensors loss_function_;
};

// forward(input, target) is the loss of the model's output.
template <typename Model>
class TrivialLossWrapper final : public LossWrapper<Model> {
 public:
  using LossWrapper<Model>::LossWrapper;

  at::Tensor forward(const at::Tensor& input, const at::Tensor& target) {
    return this->loss_of(this->module().forward(input), target);
  }
};

}  // namespace penstock
