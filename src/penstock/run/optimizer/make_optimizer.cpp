#include "penstock/run/optimizer/make_optimizer.h"

#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/optimizer/internal/optimizer_kinds.h"
#include "penstock/run/optimizer/internal/unknown_name.h"

namespace penstock {
namespace {

void refuse(std::string_view optimizer, const std::optional<double>& option,
            std::string_view option_name, std::string_view owners) {
  if (!option) return;
  throw ArgumentError(
      fmt::format("{} has no option {}; {}", optimizer, quote(option_name), owners));
}

// Those options of `Options` that exist, set to what was asked for.
template <typename Kind>
typename Kind::Options native_options(const OptimizerOptions& options) {
  typename Kind::Options native(options.learning_rate);
  if (options.weight_decay) native.weight_decay(*options.weight_decay);
  if constexpr (requires { native.momentum(); }) {
    if (options.momentum) native.momentum(*options.momentum);
  } else {
    refuse(Kind::kName, options.momentum, "momentum", "SGD and RMSprop have one");
  }
  if constexpr (requires { native.betas(); }) {
    auto& [first, second] = native.betas();
    first = options.first_beta.value_or(first);
    second = options.second_beta.value_or(second);
  } else {
    refuse(Kind::kName, options.first_beta, "first beta", "Adam and AdamW have one");
    refuse(Kind::kName, options.second_beta, "second beta", "Adam and AdamW have one");
  }
  if constexpr (requires { native.eps(); }) {
    if (options.epsilon) native.eps(*options.epsilon);
  } else {
    refuse(Kind::kName, options.epsilon, "epsilon", "all others have one");
  }
  return native;
}

}  // namespace

std::span<const std::string_view> optimizer_names() {
  return kOptimizerNames;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<at::Tensor> parameters,
                                                        const OptimizerOptions& options) {
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  const bool is_known = any_optimizer_kind([&](const auto& kind) {
    using Kind = std::remove_cvref_t<decltype(kind)>;
    if (!same_name(name, Kind::kName)) return false;
    try {
      optimizer = std::make_unique<typename Kind::Optimizer>(std::move(parameters),
                                                             native_options<Kind>(options));
    } catch (const c10::Error& error) {
      throw ArgumentError(fmt::format("{} cannot be made with these options: {}", Kind::kName,
                                      error.what_without_backtrace()));
    }
    return true;
  });
  if (!is_known) throw_unknown_name("optimizer", name, kOptimizerNames);
  return optimizer;
}

}  // namespace penstock
