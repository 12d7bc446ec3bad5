#include <iostream>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"

int main() {
  penstock::PipelineReplicas replicas(2, [](const penstock::Replica& replica) {
    torch::manual_seed(1);  // the same parameters in all replicas
    const auto stages = penstock::make_stages(torch::nn::Linear(64, 64), torch::nn::Linear(64, 64));
    // The other stage is replicated.
    penstock::shard_stage(*stages[0], {replica.index, replica.count});
    return std::make_unique<penstock::Schedule1F1B>(
        stages, penstock::ScheduleOptions{
                    .num_microbatches = 4,
                    .data_group = replica.group,
                    .loss = [](const torch::Tensor& output) { return output.square().mean(); }});
  });
  std::vector<torch::optim::AdamW> optimizers;
  for (int replica = 0; replica < replicas.num_replicas(); ++replica) {
    optimizers.emplace_back(replicas.replica(replica).parameters());
  }
  const penstock::StepResult result = replicas.step({torch::randn({32, 64})});
  for (torch::optim::AdamW& optimizer : optimizers) optimizer.step();
  std::cout << result.losses.size() << " losses, and of stage 0 a replica has "
            << replicas.replica(1).parameter_bytes()[0].slices << " of " << (64 * 64 + 64) * 4
            << " bytes\n";
}
