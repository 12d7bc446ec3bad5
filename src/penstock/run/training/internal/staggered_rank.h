#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "penstock/run/pipeline/step_series.h"
#include "penstock/run/training/gradient_norm.h"
#include "penstock/run/training/internal/snapshot.h"

namespace penstock {

// What a rank trains; lives as long as the trainer.
struct RankModel {
  int rank = 0;
  torch::optim::Optimizer& optimizer;
  std::vector<at::Tensor> parameters;
  CountedParameters counted;  // those of them that this rank counts in the norm
  Snapshot snapshot;          // with the buffers of the stages
};

// How steps are done, and who wants to know.
struct StaggeredRules {
  double max_norm = kNoLimit;
  std::function<double(std::int64_t step)> learning_rate;  // may be empty
  // A step is final. May be empty.
  std::function<void(std::int64_t step, const GradientNorm& gradients, bool was_rolled_back)>
      settled;
};

// One rank's part in a series of staggered steps:
//
//   list k         gradients of step k, which are those of all replicas
//   agree          with its replicas on the squares of the gradients of step k
//   hear           what all ranks have told about the gradients of step k - 1
//                  if the guess was wrong: back to before step k - 1, that step again but right,
//                  and list k again
//   tell           about the gradients of step k
//   guess          copy everything, step k as if all gradients were finite and short enough
//
// All ranks of all replicas hear the same, so all go back or none does.
// After a wrong guess the next step is not guessed: the rank hears about it first. So if every step
// has to be clipped, nothing is done twice.
class StaggeredRank final : public RankUpdate {
 public:
  // `first_step` is the number of the series' step 0.
  StaggeredRank(RankModel& model, StaggeredRules rules, std::int64_t first_step);

  at::Tensor tell_replicas() override;
  bool list_ended(std::int64_t step, std::span<const at::Tensor> from_replicas,
                  RankExchange& exchange) override;
  void series_ended(RankExchange& exchange) override;

 private:
  void tell(std::span<const at::Tensor> from_replicas, RankExchange& exchange) const;
  GradientNorm hear(RankExchange& exchange) const;
  void guess(std::int64_t step);
  bool settle_guess(RankExchange& exchange);
  void update(std::int64_t step, const GradientNorm& gradients);
  void run_optimizer(std::int64_t step);
  void settle(std::int64_t step, const GradientNorm& gradients, bool was_rolled_back) const;

  RankModel& model_;
  StaggeredRules rules_;
  std::int64_t first_step_;
  bool is_guessing_ = true;
  std::optional<std::int64_t> guessed_;  // the step that was guessed and is not settled
  std::vector<at::Tensor> gradients_;    // of that step, by parameter
};

}  // namespace penstock
