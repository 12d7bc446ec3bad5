#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace penstock {

// Whether an entry is part of every state, or depends on the optimizer's options.
enum class Presence { Always, Sometimes };

template <typename OptimizerType, typename OptionsType, typename StateType>
struct OptimizerTypes {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  using State = StateType;
};

// An optimizer of libtorch: its types, its name, and the entries of its state. `visit` is called
// with the name of each entry, a reference to it, and its presence.
struct SgdKind
    : OptimizerTypes<torch::optim::SGD, torch::optim::SGDOptions, torch::optim::SGDParamState> {
  static constexpr std::string_view kName = "SGD";
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("momentum_buffer", state.momentum_buffer(), Presence::Always);
  }
};

struct AdamEntries {
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("step", state.step(), Presence::Always);
    visit("exp_avg", state.exp_avg(), Presence::Always);
    visit("exp_avg_sq", state.exp_avg_sq(), Presence::Always);
    visit("max_exp_avg_sq", state.max_exp_avg_sq(), Presence::Sometimes);
  }
};
struct AdamKind
    : AdamEntries,
      OptimizerTypes<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr std::string_view kName = "Adam";
};
struct AdamWKind : AdamEntries,
                   OptimizerTypes<torch::optim::AdamW, torch::optim::AdamWOptions,
                                  torch::optim::AdamWParamState> {
  static constexpr std::string_view kName = "AdamW";
};

struct RmspropKind : OptimizerTypes<torch::optim::RMSprop, torch::optim::RMSpropOptions,
                                    torch::optim::RMSpropParamState> {
  static constexpr std::string_view kName = "RMSprop";
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("step", state.step(), Presence::Always);
    visit("square_avg", state.square_avg(), Presence::Always);
    visit("momentum_buffer", state.momentum_buffer(), Presence::Sometimes);
    visit("grad_avg", state.grad_avg(), Presence::Sometimes);
  }
};

struct AdagradKind : OptimizerTypes<torch::optim::Adagrad, torch::optim::AdagradOptions,
                                    torch::optim::AdagradParamState> {
  static constexpr std::string_view kName = "Adagrad";
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("step", state.step(), Presence::Always);
    visit("sum", state.sum(), Presence::Always);
  }
};

// All of them, and the only list of them there is.
using OptimizerKinds = std::tuple<SgdKind, AdamKind, AdamWKind, RmspropKind, AdagradKind>;

// Calls `use` with a value of each kind, in order, until it returns true; whether it did.
template <typename Use>
bool any_optimizer_kind(const Use& use) {
  return std::apply([&](const auto&... kind) { return (use(kind) || ...); }, OptimizerKinds());
}

inline constexpr auto kOptimizerNames = []<std::size_t... index>(std::index_sequence<index...>) {
  return std::array{std::tuple_element_t<index, OptimizerKinds>::kName...};
}
(std::make_index_sequence<std::tuple_size_v<OptimizerKinds>>());

}  // namespace penstock
