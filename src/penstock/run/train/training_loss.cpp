#include "penstock/run/train/training_loss.h"

#include <array>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kLosses = {"auto", "cross-entropy", "mse"};

at::Tensor cross_entropy_of(const at::Tensor& scores, const at::Tensor& target) {
  return at::cross_entropy_loss(scores.flatten(0, -2), target.flatten());
}

// Without this, libtorch compares every output with every target.
at::Tensor mean_square_of(const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() == target.sizes()) return at::mse_loss(output, target);
  const bool is_one_number = output.dim() == target.dim() + 1 && output.size(-1) == 1;
  if (is_one_number && output.squeeze(-1).sizes() == target.sizes()) {
    return at::mse_loss(output.squeeze(-1), target);
  }
  throw ArgumentError(
      fmt::format("the mean square compares number by number, but outputs are [{}] and targets "
                  "[{}]; give the targets the shape of the outputs",
                  fmt::join(output.sizes(), ", "), fmt::join(target.sizes(), ", ")));
}

}  // namespace

LossFunction make_loss(std::string_view name, const at::Tensor& targets) {
  const bool are_classes = at::isIntegralType(targets.scalar_type(), /*includeBool=*/true);
  if (name == "mse" && are_classes) {
    throw ArgumentError(
        "the loss mse takes other numbers than whole ones as targets, and these are classes; use "
        "cross-entropy, or save the targets as floating-point numbers");
  }
  if (name == "cross-entropy" || (name == "auto" && are_classes)) return cross_entropy_of;
  if (name == "mse" || name == "auto") return mean_square_of;
  const std::string_view nearest = nearest_name(name, kLosses);
  throw ArgumentError(
      fmt::format("unknown loss {}; expected {}{}", quote(name), fmt::join(kLosses, ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
}

}  // namespace penstock
