#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"

int main() {
  penstock::StageList stages;
  for (const int index : {0, 1}) {
    stages.push_back(std::make_shared<penstock::PipelineStage>(
        penstock::make_stage_module(torch::nn::Linear(4, 4)),
        penstock::StagePosition{.index = index, .num_stages = 2}));
  }
  penstock::Schedule1F1B schedule(
      stages,
      {.num_microbatches = 2, .loss = [](const at::Tensor& output, const at::Tensor& target) {
         return torch::mse_loss(output, target);
       }});
  const auto result = schedule.step({torch::ones({4, 4})}, {.target = torch::zeros({4, 4})});
  std::cout << result.losses.size() << " losses\n";
}
