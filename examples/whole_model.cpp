// A model that is handed over whole, captured as one graph and cut before its third module:
//
//   Linear  ReLU | Linear  ReLU  Linear
//     stage 0    |       stage 1

#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 1));
  const torch::Tensor inputs = torch::randn({32, 8});
  const torch::Tensor targets = torch::randn({32, 1});

  // An example of the size of a microbatch, and where to cut.
  const penstock::Pipe pipe = penstock::pipeline(
      model, {inputs.slice(0, 0, 8)}, {.split_spec = {{"2", penstock::SplitPoint::Beginning}}});
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::Schedule1F1B schedule(pipe.build_stages(), {.num_microbatches = 4, .loss = loss});
  torch::optim::SGD optimizer(model->parameters(), 0.1);

  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const penstock::StepResult result = schedule.step({inputs}, {.target = targets});
    last = torch::stack(result.losses).mean().item<double>();
    if (step == 0) first = last;
    optimizer.step();
  }
  std::cout << pipe.num_stages() << " stages, the loss " << (last < first ? "falls" : "rises")
            << "\n";
}
