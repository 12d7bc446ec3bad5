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

// An optimizer of libtorch: its name, its types, and the entries of its state. `visit` is called
// with the name of each entry, a reference to it, and its presence.
struct SgdKind {
  static constexpr std::string_view kName = "SGD";
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("momentum_buffer", state.momentum_buffer(), Presence::Always);
  }
};

template <typename OptimizerType, typename OptionsType, typename StateType>
struct AdamLikeKind {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  using State = StateType;
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("step", state.step(), Presence::Always);
    visit("exp_avg", state.exp_avg(), Presence::Always);
    visit("exp_avg_sq", state.exp_avg_sq(), Presence::Always);
    visit("max_exp_avg_sq", state.max_exp_avg_sq(), Presence::Sometimes);
  }
};
struct AdamKind
    : AdamLikeKind<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr std::string_view kName = "Adam";
};
struct AdamWKind
    : AdamLikeKind<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr std::string_view kName = "AdamW";
};

struct RmspropKind {
  static constexpr std::string_view kName = "RMSprop";
  using Optimizer = torch::optim::RMSprop;
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  template <typename AnyState, typename Visit>
  static void for_each_entry(AnyState& state, const Visit& visit) {
    visit("step", state.step(), Presence::Always);
    visit("square_avg", state.square_avg(), Presence::Always);
    visit("momentum_buffer", state.momentum_buffer(), Presence::Sometimes);
    visit("grad_avg", state.grad_avg(), Presence::Sometimes);
  }
};

struct AdagradKind {
  static constexpr std::string_view kName = "Adagrad";
  using Optimizer = torch::optim::Adagrad;
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
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
