#pragma once

#include <set>
#include <string>
#include <vector>

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

// What the gradient of each microbatch's loss starts from; `targets` may be empty.
std::vector<double> weights_of(const std::vector<c10::IValue>& targets,
                               const ScheduleOptions& options);

}  // namespace penstock
