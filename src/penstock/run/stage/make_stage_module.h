#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "penstock/run/stage/stage_module.h"

namespace penstock {

// The general form of a stage's forward.
using StageForward = std::function<c10::IValue(const std::vector<c10::IValue>& inputs,
                                               const KeywordArguments& keywords)>;

struct CallableOptions {
  std::shared_ptr<torch::nn::Module> module = nullptr;  // owns the parameters; none if null
  std::vector<std::string> keywords = {};               // that the callable takes
};

// The stage that calls `forward`.
std::shared_ptr<StageModule> make_callable_module(StageForward forward,
                                                  CallableOptions options = {});

// Runs the module's `forward` in the plain interpreter, so that its autograd graph is that of the
// operators and a backward can be split. Keyword inputs are those of its signature.
std::shared_ptr<StageModule> make_stage_module(const torch::jit::Module& module);

// Throws ArgumentError unless there are `expected` inputs and no keywords.
void require_inputs(std::size_t expected, std::size_t found, const KeywordArguments& keywords);

namespace stage_module_detail {

// Turns a call with typed parameters into the general form.
template <typename... Parameters, typename Function>
StageForward adapt(Function function) {
  return [function = std::move(function)](const std::vector<c10::IValue>& inputs,
                                          const KeywordArguments& keywords) mutable -> c10::IValue {
    require_inputs(sizeof...(Parameters), inputs.size(), keywords);
    return [&]<std::size_t... I>(std::index_sequence<I...>)->c10::IValue {
      return function(inputs[I].template to<std::decay_t<Parameters>>()...);
    }
    (std::index_sequence_for<Parameters...>());
  };
}

// `signature` only says which parameters `function` has.
template <typename Function, typename Class, typename Result, typename... Parameters>
StageForward adapt_as(Function function, Result (Class::*)(Parameters...)) {
  return adapt<Parameters...>(std::move(function));
}
template <typename Function, typename Class, typename Result, typename... Parameters>
StageForward adapt_as(Function function, Result (Class::*)(Parameters...) const) {
  return adapt<Parameters...>(std::move(function));
}

template <typename Module>
StageForward forward_of(Module* module) {
  static_assert(
      std::derived_from<Module, torch::nn::SequentialImpl> || requires { &Module::forward; },
      "the module has no forward, or several; give a callable instead");
  const auto call = [module](auto&&... inputs) { return module->forward(std::move(inputs)...); };
  if constexpr (std::derived_from<Module, torch::nn::SequentialImpl>) {
    return adapt<at::Tensor>(call);  // its forward is a template
  } else {
    return adapt_as(call, &Module::forward);
  }
}

template <typename Holder>
concept IsHolder = requires(const Holder& holder) {
  typename Holder::ContainedType;
  holder.ptr();
};

}  // namespace stage_module_detail

// A module with one `forward`. Its parameters may be tensors, numbers and everything else that an
// IValue converts to; so may its result. If `forward` is overloaded, give a callable instead.
template <typename Module>
requires std::derived_from<Module, torch::nn::Module> std::shared_ptr<StageModule>
make_stage_module(std::shared_ptr<Module> module) {
  StageForward forward = stage_module_detail::forward_of(module.get());
  return make_callable_module(std::move(forward), {.module = std::move(module)});
}

// The same for torch::nn::Linear, torch::nn::Sequential and other holders of modules.
template <stage_module_detail::IsHolder Holder>
std::shared_ptr<StageModule> make_stage_module(const Holder& holder) {
  return make_stage_module(holder.ptr());
}

// One tensor in, one tensor out.
std::shared_ptr<StageModule> make_stage_module(const torch::nn::AnyModule& module);

// A function, either in the general form of StageForward or with typed parameters, such as
// torch::relu.
template <typename Result, typename... Parameters>
std::shared_ptr<StageModule> make_stage_module(Result (*function)(Parameters...),
                                               CallableOptions options = {}) {
  if constexpr (std::convertible_to<Result (*)(Parameters...), StageForward>) {
    return make_callable_module(function, std::move(options));
  } else {
    return make_callable_module(stage_module_detail::adapt<Parameters...>(function),
                                std::move(options));
  }
}

// A callable, either in the general form of StageForward or with typed parameters, such as
// [](at::Tensor hidden, at::Tensor mask) { ... }. One whose parameters have no types, such as
// [](auto hidden) { ... }, is given one tensor.
template <typename Function>
requires(!stage_module_detail::IsHolder<Function>) std::shared_ptr<StageModule> make_stage_module(
    Function function, CallableOptions options = {}) {
  if constexpr (!requires { &Function::operator(); }) {
    static_assert(std::invocable<Function&, at::Tensor>,
                  "make_stage_module() takes a torch::nn::Module in a holder or a shared_ptr, a "
                  "torch::jit::Module, or a callable: one with typed parameters, or one that takes "
                  "a tensor");
    return make_callable_module(stage_module_detail::adapt<at::Tensor>(std::move(function)),
                                std::move(options));
  } else if constexpr (std::invocable<Function&, const std::vector<c10::IValue>&,
                                      const KeywordArguments&>) {
    return make_callable_module(std::move(function), std::move(options));
  } else {
    return make_callable_module(
        stage_module_detail::adapt_as(std::move(function), &Function::operator()),
        std::move(options));
  }
}

}  // namespace penstock
