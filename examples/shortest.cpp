#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"

int main() {
  penstock::StageList stages;
  for (const int index : {0, 1}) {
    stages.push_back(std::make_shared<penstock::PipelineStage>(
        penstock::make_stage_module(torch::nn::Linear(8, 8)),
        penstock::StagePosition{.index = index, .num_stages = 2}));
  }
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::Schedule1F1B schedule(stages, {.num_microbatches = 4, .loss = loss});
  const auto result = schedule.step({torch::randn({16, 8})}, {.target = torch::randn({16, 8})});
  std::cout << result.losses.size() << " losses\n";  // the parameters have their gradients
}
