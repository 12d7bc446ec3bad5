// DualPipeV runs the forward of one microbatch and the backward of another as one action. What that
// means is up to you: here both halves run at the same time, on two threads.
//
//   OVERLAP_F_B | 0F4 on this thread
//               | 3B1 on another one

#include <atomic>
#include <iostream>
#include <thread>

#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"

int main() {
  torch::manual_seed(1);
  const auto stages = penstock::make_stages(torch::nn::Linear(16, 16), torch::nn::Linear(16, 16),
                                            torch::nn::Linear(16, 16), torch::nn::Linear(16, 16));

  std::atomic<int> num_overlaps = 0;
  penstock::CustomFunctions functions;
  functions[penstock::ActionKind::Overlap] = [&](penstock::ActionContext& context) {
    ++num_overlaps;
    std::thread other([&] { context.run_part(1); });
    context.run_part(0);
    other.join();
  };
  // Other kinds of actions may be wrapped as well, inside of overlaps too.
  std::atomic<int> num_forwards = 0;
  functions[penstock::ActionKind::Forward] = [&](penstock::ActionContext& context) {
    ++num_forwards;
    context.run();
  };

  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::ScheduleDualPipeV schedule(
      stages, {.num_microbatches = 6, .loss = loss, .custom_functions = functions});
  const auto result = schedule.step({torch::randn({12, 16})}, {.target = torch::randn({12, 16})});
  std::cout << result.losses.size() << " losses, " << num_forwards << " forwards, "
            << (num_overlaps > 0 ? "some" : "none") << " of them with a backward at their side\n";
}
