#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "penstock/run/executor/step_work.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// Which ends of the pipeline are in this process: only they read inputs, and targets.
struct LocalEnds {
  bool has_first_stage = true;
  bool has_last_stage = true;
};

// The batch of a step, split into microbatches as the options say. Inputs and targets that no stage
// of this process reads are left out, except for keywords, which any stage may take.
PresplitBatch split_batch(std::vector<c10::IValue> inputs, const StepOptions& step_options,
                          const ScheduleOptions& options, LocalEnds ends);

// The same of a batch that is split already.
PresplitBatch keep_local(PresplitBatch batch, const ScheduleOptions& options, LocalEnds ends);

// Throws ArgumentError unless there is an input, and a target if there are any, per microbatch.
void require_batch(const PresplitBatch& batch, int num_microbatches);

// Throws ArgumentError if there is a target that the loss does not take.
void require_no_useless_target(const PresplitBatch& batch, const LossFunction& loss);

// Throws ArgumentError, with the nearest name, for a keyword input that is not among `keywords`.
void require_keywords(const PresplitBatch& batch, const std::set<std::string>& keywords);

// What the gradient of each microbatch's loss starts from, up to a common factor if gradients are
// scaled. None if no loss is computed, because the last stage is not here, or there is no loss
// function, or no target for it.
std::vector<double> relative_weights(const PresplitBatch& batch, const ScheduleOptions& options,
                                     LocalEnds ends);

// What ranks are to do with a batch in the transport's step `number`. Refers to its arguments.
struct WorkOptions {
  std::int64_t number = 0;
  bool is_training = true;
  std::uint64_t random_seed = 0;
  int first_microbatch = 0;  // its number among those of all replicas
};
StepWork make_work(const PresplitBatch& batch, std::span<const double> loss_weights,
                   const StepOptions& step_options, const ScheduleOptions& options, LocalEnds ends,
                   const WorkOptions& work_options);

// What comes out of work that is done, by microbatch.
struct MicrobatchResults {
  std::vector<c10::IValue> outputs;  // none unless they were to be kept
  std::vector<at::Tensor> losses;    // none if none was computed
};
MicrobatchResults results_of(StepWork& work);

// What the caller gets of it.
StepResult merge_results(MicrobatchResults results, const ScheduleOptions& options);

}  // namespace penstock
