// Two stages that are cut by hand, on two ranks that are threads. Time runs to the right:
//
//   rank 0, stage 0 | F0 F1 .  B0 F2 B1 F3 B2 .  B3
//   rank 1, stage 1 | .  F0 B0 F1 B1 F2 B2 F3 B3 .

#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential first(torch::nn::Linear(8, 16), torch::nn::ReLU());
  torch::nn::Sequential second(torch::nn::Linear(16, 1));
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };

  // A stage is anything with a forward: a module, a TorchScript module or a callable.
  const penstock::StageList stages = penstock::make_stages(first, second);
  penstock::Schedule1F1B schedule(stages, {.num_microbatches = 4, .loss = loss});

  const torch::Tensor inputs = torch::randn({32, 8});
  const torch::Tensor targets = torch::randn({32, 1});
  const penstock::StepResult result = schedule.step({inputs}, {.target = targets});
  const torch::Tensor gradient = first->parameters()[0].grad().clone();

  // The same without a pipeline: the microbatches one after the other.
  first->zero_grad();
  second->zero_grad();
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    const auto rows = [microbatch](const torch::Tensor& batch) {
      return batch.slice(0, 8 * microbatch, 8 * microbatch + 8);
    };
    const torch::Tensor output = second->forward(first->forward(rows(inputs)));
    loss(output, rows(targets)).backward(torch::full({}, 1.0 / 4));
  }
  std::cout << result.losses.size() << " losses, output of " << result.output.toTensor().size(0)
            << " rows, gradients "
            << (torch::equal(gradient, first->parameters()[0].grad()) ? "equal" : "different")
            << " to the bit\n";
}
