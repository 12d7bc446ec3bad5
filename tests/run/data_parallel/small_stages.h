#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

// Stages of a few numbers, whose gradients one can tell.
namespace penstock {

torch::Tensor trained(double value);

// A stage that computes `forward` from its input and the parameters it is given, by name.
using Parameters = std::vector<std::pair<std::string, torch::Tensor>>;
std::shared_ptr<PipelineStage> stage_with(const Parameters& parameters,
                                          std::function<torch::Tensor(torch::Tensor)> forward,
                                          StagePosition position = {});

// Linear layers of one width, each a stage, the same whenever they are made.
inline constexpr int kWidth = 64;
StageList wide_stages(int num_stages);

// The loss is the sum of the outputs.
ScheduleOptions sum_options(const Replica& replica, int num_microbatches = 1);

Schedule one_rank(int num_microbatches = 1);

}  // namespace penstock
