// Ranks as processes: each makes its own stage, and they meet where `penstock launch` tells them.
//
//   penstock launch -n 2 -- ./processes
//
//   process 0: stage 0, the inputs  <-- shared memory or Gloo -->  process 1: stage 1, the targets

#include <cstdlib>
#include <exception>
#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/stage/make_stage_module.h"

void train() {
  penstock::World world(penstock::world_options_from_environment(std::getenv));
  const auto group = std::make_shared<penstock::ProcessRanks>(
      world, penstock::ProcessRankOptions{.model = "demo"});

  torch::manual_seed(1);
  torch::nn::Linear layer(8, 8);
  const auto stage = std::make_shared<penstock::PipelineStage>(
      penstock::make_stage_module(layer),
      penstock::StagePosition{.index = world.rank(), .num_stages = world.size()});
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::Schedule1F1B schedule({stage}, {.num_microbatches = 4, .group = group, .loss = loss});
  torch::optim::SGD optimizer(layer->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    // The first rank needs the inputs, the last one the targets; both are ignored elsewhere.
    const auto result = schedule.step({torch::ones({16, 8})}, {.target = torch::zeros({16, 8})});
    optimizer.step();
    optimizer.zero_grad();
    if (step == 4) {
      std::cout << "rank " << world.rank() << " has " << result.losses.size() << " losses\n";
    }
  }
}

int main() {
  try {
    train();
  } catch (const std::exception& error) {  // names the rank that has failed
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
