#pragma once

#include <map>
#include <memory>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace penstock {

class StageModule;

// Which of the stages of one model counts a parameter as its own that several of them use: the
// first that asks. So one optimizer per stage steps it once. Safe from any thread.
class SharedClaims {
 public:
  // Whether `parameter` belongs to `module`. It stays so for as long as the module lives.
  bool claim(const at::Tensor& parameter, const std::shared_ptr<const StageModule>& module);

 private:
  std::mutex mutex_;  // guards owners_
  std::map<const c10::TensorImpl*, std::weak_ptr<const StageModule>> owners_;
};

}  // namespace penstock
