#include "penstock/run/capture/saved_state.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

namespace penstock {

SavedState::SavedState(const std::vector<at::Tensor>& buffers)
    : generator_(at::detail::getDefaultCPUGenerator()) {
  {
    const std::lock_guard lock(generator_.mutex());
    random_state_ = generator_.get_state();
  }
  for (const at::Tensor& buffer : buffers) buffers_.emplace_back(buffer, buffer.detach().clone());
}

SavedState::~SavedState() {
  const at::NoGradGuard no_grad;
  for (auto& [buffer, copy] : buffers_) {
    if (!buffer.equal(copy)) buffer.copy_(copy);
  }
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(random_state_);
}

SavedGradients::SavedGradients(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (at::Tensor& tensor : tensors_) {
    gradients_.push_back(tensor.grad());
    tensor.mutable_grad().reset();
  }
}

SavedGradients::~SavedGradients() {
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    tensors_[index].mutable_grad() = gradients_[index];
  }
}

}  // namespace penstock
