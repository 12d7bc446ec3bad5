#pragma once

#include <vector>

#include <torch/torch.h>

#include "tests/run/support/models.h"

namespace penstock {

// What one step of training gave.
struct TrainedStep {
  torch::Tensor output;               // of the whole batch
  std::vector<torch::Tensor> losses;  // by microbatch
  std::vector<torch::Tensor> gradients;
};

// The ruler of every pipeline test: one thread, one autograd graph per microbatch, one microbatch
// after the other in the given order, each loss weighted as `weights` say: by default, by 1 /
// number of microbatches.
enum class BaselineWeights { Equal, ByRows };
TrainedStep train_without_pipeline(const TestModel& model, const Blocks& blocks,
                                   const torch::Tensor& inputs, const torch::Tensor& targets,
                                   const std::vector<int>& order,
                                   BaselineWeights weights = BaselineWeights::Equal);

// Copies of the gradients, undefined where there is none.
std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters);

// The same tensors to the bit; says which one is not.
void expect_equal(const std::vector<torch::Tensor>& found,
                  const std::vector<torch::Tensor>& expected, const char* what);

}  // namespace penstock
