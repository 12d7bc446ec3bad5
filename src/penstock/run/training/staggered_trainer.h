#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/pipeline/step_series.h"
#include "penstock/run/training/gradient_norm.h"

namespace penstock {

// What became of a step.
struct StepOutcome {
  std::int64_t step = 0;
  StepResult result;       // as step() returns it
  GradientNorm gradients;  // over all ranks; if they are not finite, the step was left out
  // The step had to be taken back, and the list after it run again.
  bool was_rolled_back = false;
};

struct StaggeredOptions {
  double max_norm = kNoLimit;  // gradients beyond are clipped
  // Of all parameter groups in a step; without it, optimizers keep theirs. Called by the threads of
  // all ranks, at the same time.
  std::function<double(std::int64_t step)> learning_rate = {};
};

// Which steps to train.
struct StaggeredSteps {
  std::int64_t first = 0;
  std::int64_t count = 0;
  // The batch of a step; see StepSeries::batch for the thread that calls it.
  std::function<StepBatch(std::int64_t step)> batch = {};
  // Called once per step, in order, on the thread of the rank that has the last stage of this
  // process. May be empty.
  std::function<void(StepOutcome outcome)> take_outcome = {};
};

// Trains without a barrier between steps: each rank steps its own parameters as soon as their
// gradients are final, and goes on. Whether the gradients of all ranks are finite, and whether they
// have to be clipped, is known only later; a rank assumes that they are and have not, and takes its
// step back if that turns out to be wrong. So parameters are, to the bit, those of
//
//   pipeline.step(...);
//   gradients = clip_grad_norm(pipeline, max_norm);
//   if (gradients.is_finite()) optimizer.step();
//   optimizer.zero_grad(set_to_none);
//
// and a step takes what its busiest rank takes, not what it takes from the first action to the
// last. docs/concepts/staggered-steps.md has the protocol and its price.
class StaggeredTrainer {
 public:
  using MakeOptimizer =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;

  // `make_optimizer` is called here, for each rank of this process in turn, with the parameters of
  // its stages. `pipeline` must outlive this object. Throws ArgumentError if the state of such an
  // optimizer cannot be copied; see optimizer_state.h.
  StaggeredTrainer(PipelineSchedule& pipeline, const MakeOptimizer& make_optimizer,
                   StaggeredOptions options = {});
  StaggeredTrainer(const StaggeredTrainer&) = delete;
  StaggeredTrainer& operator=(const StaggeredTrainer&) = delete;
  StaggeredTrainer(StaggeredTrainer&&) = delete;
  StaggeredTrainer& operator=(StaggeredTrainer&&) = delete;
  ~StaggeredTrainer();

  // Returns when the last step is final on all ranks of this process. Throws what step() throws.
  // After that, ranks may have got to different steps: go on from a checkpoint.
  void run(const StaggeredSteps& steps);

  // Of the ranks of this process, ascending, with the parameters of their stages. For checkpoints,
  // between two calls of run().
  std::vector<torch::optim::Optimizer*> optimizers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
