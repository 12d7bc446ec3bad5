// A schedule of your own is a list of actions per rank. Here rank 0 holds the first and the last
// stage, rank 1 the one between, and each microbatch goes through as soon as it can:
//
//   rank 0 | 0F0 0F1     2F0 2B0 2F1 2B1 0B0 0B1
//   rank 1 |     1F0 1F1         1B0     1B1

#include <iostream>

#include <torch/torch.h>

#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stages.h"

constexpr const char* kOrder =
    "0F0,0F1,,2F0,2B0,2F1,2B1,0B0,0B1\n"
    ",1F0,1F1,,,1B0,,1B1\n";

int main() {
  const penstock::Schedule order = penstock::read_csv(kOrder, "order");
  const penstock::Schedule program = penstock::lower(order, {.sharding = false});
  std::cout << (penstock::check(order).is_valid() ? "valid" : "invalid") << ", rank 1 does:";
  for (const penstock::Action& action : program.actions_of(1)) {
    std::cout << ' ' << to_string(action);
  }
  std::cout << '\n';

  const auto stages = penstock::make_stages(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4),
                                            torch::nn::Linear(4, 4));
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  penstock::PipelineSchedule schedule(stages, order, {.num_microbatches = 2, .loss = loss});
  const auto result = schedule.step({torch::randn({6, 4})}, {.target = torch::randn({6, 4})});
  std::cout << schedule.num_ranks() << " ranks, " << result.losses.size() << " losses\n";
}
