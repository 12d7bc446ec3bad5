#pragma once

#include <string>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace c10 {
class OperatorHandle;
}

namespace penstock {

// Sees every operator that the calling thread calls while a model is traced, before the tracer
// does. Refuses those that hand the value of a tensor to the model, and tells the tracer which ones
// are called with gradients switched off.
class OperatorWatch {
 public:
  // `owners` has the module path of each parameter and buffer.
  explicit OperatorWatch(std::unordered_map<const c10::TensorImpl*, std::string> owners);
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  OperatorWatch(OperatorWatch&&) = delete;
  OperatorWatch& operator=(OperatorWatch&&) = delete;
  ~OperatorWatch();

  static void call(const c10::OperatorHandle& operation, torch::jit::Stack* stack);

 private:
  void see(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);
  std::string place() const;

  std::unordered_map<const c10::TensorImpl*, std::string> owners_;
  std::string last_owner_;  // of the last parameter that was used
  OperatorWatch* before_;
  c10::impl::IncludeDispatchKeyGuard is_watching_;
};

}  // namespace penstock
