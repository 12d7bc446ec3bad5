#include "tests/run/support/callable_stages.h"

#include <cstddef>

namespace penstock {

StageList stages_of(const std::vector<std::shared_ptr<StageModule>>& modules) {
  StageList stages;
  const int num_stages = static_cast<int>(modules.size());
  for (int index = 0; index < num_stages; ++index) {
    stages.push_back(
        std::make_shared<PipelineStage>(modules[static_cast<std::size_t>(index)],
                                        StagePosition{.index = index, .num_stages = num_stages}));
  }
  return stages;
}

torch::Tensor parameter(double value) {
  return torch::full({}, value, torch::requires_grad());
}

torch::Tensor sum_of_products(const torch::Tensor& output, const torch::Tensor& target) {
  return (output * target).sum();
}

}  // namespace penstock
