#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace penstock {

// What is not set is as libtorch has it by default for the optimizer.
struct OptimizerOptions {
  double learning_rate = 1e-3;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> momentum = std::nullopt;     // SGD, RMSprop
  std::optional<double> first_beta = std::nullopt;   // Adam, AdamW
  std::optional<double> second_beta = std::nullopt;  // Adam, AdamW
  std::optional<double> epsilon = std::nullopt;      // all but SGD
};

// The names that make_optimizer() knows: "SGD", "Adam", "AdamW", "RMSprop", "Adagrad".
std::span<const std::string_view> optimizer_names();

// One of libtorch's optimizers, by name in any case, on `parameters`. Throws ArgumentError, with
// the nearest name, if there is no such optimizer; and if it does not have an option that is set,
// or does not take its value.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<at::Tensor> parameters,
                                                        const OptimizerOptions& options);

}  // namespace penstock
