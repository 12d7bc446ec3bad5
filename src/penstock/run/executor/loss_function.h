#pragma once

#include <concepts>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

// What the last stage is trained to make small, from its output and the target of a microbatch.
// Returns a tensor with one element. Made from a callable that takes
//
//   (at::Tensor output, at::Tensor target)  or
//   (c10::IValue output, c10::IValue target, const KeywordArguments& keywords)
class LossFunction {
 public:
  LossFunction() = default;

  template <typename Function>
  requires std::invocable<Function&, const c10::IValue&, const c10::IValue&,
                          const KeywordArguments&>
  LossFunction(Function function)  // NOLINT(google-explicit-constructor): any callable is one
      : function_(std::move(function)) {}

  template <typename Function>
  requires std::invocable<Function&, const at::Tensor&, const at::Tensor&> &&(
      !std::invocable<Function&, const c10::IValue&, const c10::IValue&,
                      const KeywordArguments&>)
      LossFunction(Function function)  // NOLINT(google-explicit-constructor): any callable is one
      : function_([function = std::move(function)](const c10::IValue& output,
                                                   const c10::IValue& target,
                                                   const KeywordArguments& /*keywords*/) mutable {
          return function(output.toTensor(), target.toTensor());
        }) {}

  explicit operator bool() const { return static_cast<bool>(function_); }

  at::Tensor operator()(const c10::IValue& output, const c10::IValue& target,
                        const KeywordArguments& keywords) const {
    return function_(output, target, keywords);
  }

 private:
  std::function<at::Tensor(const c10::IValue&, const c10::IValue&, const KeywordArguments&)>
      function_;
};

}  // namespace penstock
