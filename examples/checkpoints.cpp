// Training that is saved under one schedule and goes on under another, to the same bits:
//
//   ZBV, 4 stages: steps 0 to 4 -> checkpoint -> 1F1B, 3 stages: steps 5 to 9

#include <filesystem>
#include <iostream>

#include <torch/torch.h>

#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/random/random_scope.h"

namespace nn = torch::nn;

torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

// Trains from the newest checkpoint in `folder`, if there is one, up to `last_step`.
torch::Tensor train(const std::filesystem::path& folder, const char* schedule_name, int num_stages,
                    std::int64_t last_step) {
  torch::manual_seed(7);
  nn::Sequential model(nn::Linear(8, 8), nn::Dropout(0.1), nn::Linear(8, 8), nn::Dropout(0.1),
                       nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 1));
  const penstock::Pipe pipe = penstock::pipeline(
      model, {torch::zeros({4, 8})}, {.split_policy = penstock::split_by_parameters(num_stages)});
  const auto schedule = penstock::get_schedule_class(schedule_name)(
      pipe.build_stages(), {.num_microbatches = 4, .loss = loss});
  torch::optim::AdamW optimizer(pipe.parameters());

  const auto states = penstock::rank_states(schedule->stages(), &optimizer);
  penstock::TrainingPosition position{.seed = 7};
  if (const auto latest = penstock::latest_checkpoint(folder)) {
    position = penstock::load_checkpoint(*latest, states);
  }
  for (; position.step < last_step; ++position.step) {
    // Batches and dropout depend on the run's seed and on the step, so they need no state.
    torch::manual_seed(position.seed);
    const std::uint64_t seed = penstock::step_seed(static_cast<std::uint64_t>(position.step));
    torch::manual_seed(seed);
    const torch::Tensor inputs = torch::randn({16, 8});
    optimizer.zero_grad();
    schedule->step({inputs}, {.target = inputs.sum(1, true), .seed = seed});
    optimizer.step();
  }
  penstock::save_checkpoint(folder, states, position, {.keep = 3});
  return model->parameters()[0].clone();
}

int main() {
  const std::filesystem::path run = "checkpoints-of-the-guide";
  train(run / "resumed", "ZBVZeroBubble", 4, 5);
  const torch::Tensor resumed = train(run / "resumed", "1F1B", 3, 10);
  const torch::Tensor undisturbed = train(run / "undisturbed", "GPipe", 1, 10);
  std::cout << "after 10 steps: " << (resumed.equal(undisturbed) ? "equal" : "different") << "\n";
  std::filesystem::remove_all(run);
}
