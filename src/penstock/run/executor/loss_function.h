#pragma once

#include <concepts>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

// What the last stage is trained to make small, from its output and the target of a microbatch, or
// from the output alone. Returns a tensor with one element. Made from a callable that takes
//
//   (at::Tensor output, at::Tensor target),
//   (c10::IValue output, c10::IValue target, const KeywordArguments& keywords),
//   (at::Tensor output)  or
//   (c10::IValue output, const KeywordArguments& keywords)
//
// A model that computes its loss itself is trained with loss_in_output().
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

  template <typename Function>
  // NOLINTNEXTLINE(google-explicit-constructor): any callable is one
  requires std::invocable<Function&, const c10::IValue&, const KeywordArguments&> LossFunction(
      Function function)
      : function_([function = std::move(function)](const c10::IValue& output,
                                                   const c10::IValue& /*target*/,
                                                   const KeywordArguments& keywords) mutable {
          return function(output, keywords);
        }),
        needs_target_(false) {}

  template <typename Function>
  // NOLINTNEXTLINE(google-explicit-constructor): any callable is one
  requires std::invocable<Function&, const at::Tensor&> LossFunction(Function function)
      : LossFunction([function = std::move(function)](
                         const c10::IValue& output, const KeywordArguments& /*keywords*/) mutable {
          return function(output.toTensor());
        }) {}

  // Whether there is no loss without a target. Of an empty function, of no meaning.
  bool needs_target() const { return needs_target_; }

  explicit operator bool() const { return static_cast<bool>(function_); }

  at::Tensor operator()(const c10::IValue& output, const c10::IValue& target,
                        const KeywordArguments& keywords) const {
    return function_(output, target, keywords);
  }

 private:
  std::function<at::Tensor(const c10::IValue&, const c10::IValue&, const KeywordArguments&)>
      function_;
  bool needs_target_ = true;
};

// The loss that a model returns, by itself or among other outputs.
//
// `spec` says where: `true` if it is the output; a tuple, list or dict of such specs, one for each
// entry of the output, of which one is `true` and the others `false`. In a dict, entries that are
// not named count as `false`. Without a spec, the output is a dict with an entry "loss". Throws
// ArgumentError if no loss is named; an output that does not fit is an error of the step.
LossFunction loss_in_output(const c10::IValue& spec = {});

}  // namespace penstock
