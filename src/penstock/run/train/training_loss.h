#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "penstock/run/executor/loss_function.h"

namespace penstock {

// What a model is trained to make small, by name:
//   cross-entropy  scores of classes in the last dimension, against whole numbers
//   mse            the mean of squared differences, of outputs that have the shape of the targets,
//                  or a last dimension of 1 besides
//   auto           the former for whole numbers as targets, the latter for others
// Throws ArgumentError, with the nearest name, for any other, and for mse if targets are classes.
LossFunction make_loss(std::string_view name, const at::Tensor& targets);

}  // namespace penstock
