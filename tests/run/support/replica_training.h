#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/data_parallel/replica_link.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "tests/run/support/models.h"

namespace penstock {

// How stages are spread over the replicas of a pipeline.
enum class Spread { Replicated, Sharded, Mixed };
std::string to_string(Spread spread);

// Shards all stages, or in Mixed every other one; the rest is left to the pipeline.
void spread_stages(const StageList& stages, Spread spread, ReplicaPosition replica);

// The whole parameters of the stages, in their order, and with their names. To be called by all
// replicas at the same time.
NamedTensors whole_parameters(const StageList& stages);

// Each replica's part of a step.
struct ReplicaShape {
  int num_replicas = 2;
  int num_microbatches = 4;  // of each
};

// The order in which a stage's weight gradients are added up.
std::vector<int> weight_gradient_order(const Schedule& order, int stage);

// The ruler of data parallel training: one process, in which the gradients of each replica's
// microbatches are accumulated in the given order, and then those of the replicas added in their
// order. Gradients that were there are kept, and added to.
void accumulate_like_replicas(const TestModel& model, const Blocks& blocks,
                              const ReplicaShape& shape, const std::vector<int>& order,
                              const torch::Tensor& inputs, const torch::Tensor& targets);

torch::optim::AdamW make_adam(const std::vector<torch::Tensor>& parameters);

// Rows of the batch of a step: not all microbatches have the same number, every other time.
int rows_of_step(const ReplicaShape& shape, int step);

// Five steps of AdamW by the ruler. Returns the parameters with their names, as whole_parameters().
NamedTensors train_by_ruler(const TestModel& model, const Schedule& order,
                            const ReplicaShape& shape);

}  // namespace penstock
