#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace penstock {

class StageModule;

// One use of a parameter that several stages use, as all processes know it.
struct SharedPlace {
  int stage = 0;
  std::string name;  // of the parameter
};

// Which of the stages of one model counts a parameter as its own that several of them use: the
// first that asks. So one optimizer per stage steps it once. Safe from any thread.
class SharedClaims {
 public:
  // Whether `parameter` belongs to `module`. It stays so for as long as the module lives.
  bool claim(const at::Tensor& parameter, const std::shared_ptr<const StageModule>& module);

  // The uses by all stages of the model, by stage and in the order of StageModule's
  // shared_parameters(). Needed if some of the stages are in other processes. To be set before
  // anybody asks.
  void set_uses(std::vector<SharedPlace> uses) { uses_ = std::move(uses); }
  const std::vector<SharedPlace>& uses() const { return uses_; }

 private:
  std::vector<SharedPlace> uses_;
  std::mutex mutex_;  // guards owners_
  std::map<const c10::TensorImpl*, std::weak_ptr<const StageModule>> owners_;
};

}  // namespace penstock
