#pragma once

#include <torch/torch.h>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stages.h"

// What stages small enough to write down in a test are made of, and what trains them.
namespace penstock {

// A number that requires a gradient.
torch::Tensor parameter(double value);

// A loss whose gradient is the target.
torch::Tensor sum_of_products(const torch::Tensor& output, const torch::Tensor& target);

}  // namespace penstock
