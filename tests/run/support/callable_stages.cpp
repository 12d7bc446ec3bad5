#include "tests/run/support/callable_stages.h"

namespace penstock {

torch::Tensor parameter(double value) {
  return torch::full({}, value, torch::requires_grad());
}

torch::Tensor sum_of_products(const torch::Tensor& output, const torch::Tensor& target) {
  return (output * target).sum();
}

}  // namespace penstock
