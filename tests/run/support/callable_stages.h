#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stage_module.h"

// Stages small enough to write down in a test, and what trains them.
namespace penstock {

// One stage per module, in order.
StageList stages_of(const std::vector<std::shared_ptr<StageModule>>& modules);

// One stage per callable.
template <typename... Functions>
StageList stages_of(Functions... functions) {
  const std::vector<std::shared_ptr<StageModule>> modules = {
      make_stage_module(std::move(functions))...};
  return stages_of(modules);
}

// A number that requires a gradient.
torch::Tensor parameter(double value);

// A loss whose gradient is the target.
torch::Tensor sum_of_products(const torch::Tensor& output, const torch::Tensor& target);

}  // namespace penstock
