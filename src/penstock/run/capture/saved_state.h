#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace penstock {

// Puts back what running a model changes besides its outputs, when it goes out of scope: the given
// buffers, and the state of the default random generator of the CPU.
class SavedState {
 public:
  explicit SavedState(const std::vector<at::Tensor>& buffers);
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;
  SavedState(SavedState&&) = delete;
  SavedState& operator=(SavedState&&) = delete;
  ~SavedState();

 private:
  at::Generator generator_;
  at::Tensor random_state_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and copies of them
};

// Takes the gradients away from tensors and gives them back when it goes out of scope.
class SavedGradients {
 public:
  explicit SavedGradients(std::vector<at::Tensor> tensors);
  SavedGradients(const SavedGradients&) = delete;
  SavedGradients& operator=(const SavedGradients&) = delete;
  SavedGradients(SavedGradients&&) = delete;
  SavedGradients& operator=(SavedGradients&&) = delete;
  ~SavedGradients();

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace penstock
