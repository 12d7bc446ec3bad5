#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/executor/loss_function.h"
#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

// What the ranks work on in one step. Shared by all of them; the results are written by the rank
// of the last stage only.
struct StepWork {
  std::int64_t number = 0;  // of the step, the same on all ranks
  bool is_training = false;
  WeightGradients weight_gradients = WeightGradients::Exact;

  std::span<const Microbatch> inputs;    // one per microbatch
  std::span<const c10::IValue> targets;  // one per microbatch, or none
  const LossFunction* loss = nullptr;    // null: no loss is computed
  const KeywordArguments* loss_keywords = nullptr;
  std::span<const double> loss_weights;  // what the gradient of each loss starts from
  bool allows_detached_loss = false;     // a loss that trains nothing is no mistake
  int first_microbatch = 0;              // its number among those of all replicas
  bool keeps_outputs = true;
  std::uint64_t random_seed = 0;  // of the step; see RandomScope

  // By microbatch, whatever the order they ran in.
  std::vector<c10::IValue> outputs;
  std::vector<at::Tensor> losses;
};

}  // namespace penstock
