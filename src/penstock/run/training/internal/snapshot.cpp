#include "penstock/run/training/internal/snapshot.h"

#include <cstddef>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>

namespace penstock {

void Snapshot::Copy::take(const at::Tensor& tensor) {
  is_taken = true;
  if (!copy.defined() || copy.sizes() != tensor.sizes() || copy.dtype() != tensor.dtype()) {
    copy = tensor.detach().clone();
  } else {
    copy.copy_(tensor.detach());
  }
}

void Snapshot::Copy::restore(const at::Tensor& tensor) const {
  if (is_taken) tensor.detach().copy_(copy);
}

Snapshot::Snapshot(torch::optim::Optimizer& optimizer, std::vector<at::Tensor> others)
    : optimizer_(optimizer), others_(std::move(others)), other_copies_(others_.size()) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      parameters_.push_back({.tensor = parameter, .value = {}, .state = {}, .state_copies = {}});
    }
  }
}

void Snapshot::take() {
  const at::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) {
    parameter.value.is_taken = false;
    if (!parameter.tensor.grad().defined()) continue;
    parameter.value.take(parameter.tensor);
    parameter.state = state_of(optimizer_, parameter.tensor);
    parameter.state_copies.resize(parameter.state.size());
    for (std::size_t entry = 0; entry < parameter.state.size(); ++entry) {
      parameter.state_copies[entry].is_taken = false;
      if (const auto* tensor = std::get_if<at::Tensor>(&parameter.state[entry].value)) {
        parameter.state_copies[entry].take(*tensor);
      }
    }
  }
  for (std::size_t index = 0; index < others_.size(); ++index) {
    other_copies_[index].take(others_[index]);
  }
}

void Snapshot::restore() {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.value.is_taken) continue;
    parameter.value.restore(parameter.tensor);
    for (std::size_t entry = 0; entry < parameter.state.size(); ++entry) {
      if (const auto* tensor = std::get_if<at::Tensor>(&parameter.state[entry].value)) {
        parameter.state_copies[entry].restore(*tensor);
      }
    }
    set_state(optimizer_, parameter.tensor, parameter.state);
  }
  for (std::size_t index = 0; index < others_.size(); ++index) {
    other_copies_[index].restore(others_[index]);
  }
}

}  // namespace penstock
