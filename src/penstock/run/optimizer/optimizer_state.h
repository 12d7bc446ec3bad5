#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

// What libtorch's optimizers know about a parameter, as plain values. Supported are SGD, Adam,
// AdamW, RMSprop and Adagrad; any other optimizer is an ArgumentError that says so.
namespace penstock {

using StateValue = std::variant<std::int64_t, at::Tensor>;

struct StateEntry {
  std::string name;  // as in PyTorch's state dicts: "step", "exp_avg", "momentum_buffer", ...
  StateValue value;
};

// The state of `parameter`; empty before its first step, except with Adagrad, and with an SGD that
// has no momentum. Tensors are the optimizer's own, not copies: the next step writes to them.
std::vector<StateEntry> state_of(const torch::optim::Optimizer& optimizer,
                                 const at::Tensor& parameter);

// Replaces the state of `parameter`. The optimizer keeps the tensors that are given, without
// copying. A count may also be a tensor with one element, as newer state dicts have it. Without
// entries, the parameter is as before its first step. Throws ArgumentError, which names the entry,
// if one is missing, unknown, there twice, of another kind or not of the parameter's sizes.
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
               const std::vector<StateEntry>& entries);

// The entries that `optimizer` may keep as tensors of a parameter's sizes, in a fixed order: also
// those that its options leave out.
std::vector<std::string> tensor_entries(const torch::optim::Optimizer& optimizer);

// "SGD", "Adam", "AdamW", "RMSprop" or "Adagrad".
std::string optimizer_name(const torch::optim::Optimizer& optimizer);

}  // namespace penstock
