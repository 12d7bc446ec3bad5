#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"

int main() {
  const auto stages = penstock::make_stages(torch::nn::Linear(8, 8), torch::nn::Linear(8, 8));
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::Schedule1F1B schedule(stages, {.num_microbatches = 4, .loss = loss});
  const auto result = schedule.step({torch::randn({16, 8})}, {.target = torch::randn({16, 8})});
  std::cout << result.losses.size() << " losses\n";  // the parameters have their gradients
}
