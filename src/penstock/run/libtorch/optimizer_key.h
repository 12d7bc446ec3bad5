#pragma once

#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace penstock {

// The table in which an optimizer keeps what it knows about each parameter.
using OptimizerTable =
    std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

// The key of `parameter` in that table: its address, which 1.13 writes as text and 2.x does not.
template <class Table = OptimizerTable>
typename Table::key_type optimizer_key(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<typename Table::key_type, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

}  // namespace penstock
