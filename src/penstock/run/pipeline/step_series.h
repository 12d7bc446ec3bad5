#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/pipeline/rank_exchange.h"

namespace penstock {

// What PipelineSchedule::step() is given.
struct StepBatch {
  std::vector<c10::IValue> inputs = {};  // none if the process does not have the first stage
  StepOptions options = {};
};

// What a rank does with its gradients when they are final. Used by the thread of the rank.
class RankUpdate {
 public:
  RankUpdate() = default;
  RankUpdate(const RankUpdate&) = delete;
  RankUpdate& operator=(const RankUpdate&) = delete;
  RankUpdate(RankUpdate&&) = delete;
  RankUpdate& operator=(RankUpdate&&) = delete;
  virtual ~RankUpdate() = default;

  // The rank has run its list. What it tells its replicas, in a tensor that nobody changes later.
  virtual at::Tensor tell_replicas() = 0;

  // All replicas of the rank have run their list of `step` and told `from_replicas`, in their
  // order; without replicas, that is what the rank itself has told. Returns false if the list has
  // to be run again, on other parameters: then all ranks of all replicas do.
  virtual bool list_ended(std::int64_t step, std::span<const at::Tensor> from_replicas,
                          RankExchange& exchange) = 0;

  // The last list is over.
  virtual void series_ended(RankExchange& exchange) = 0;
};

// Steps that follow each other without a barrier. A rank goes on to its list of the next step as
// soon as it is done with its own, whether the others are or not. It waits for its replicas alone,
// with which it adds up gradients anyway.
struct StepSeries {
  std::int64_t num_steps = 0;

  // The batch of a step. Called once per step, in order, on the thread of the rank that is first to
  // need it; never by two threads at a time.
  std::function<StepBatch(std::int64_t step)> batch = {};

  // Called for every rank of this process, on its thread, before its first list.
  std::function<std::unique_ptr<RankUpdate>(int rank, std::span<PipelineStage* const> stages)>
      make_update = {};

  // What step() returns, when the list of the step will not be run again. Called once per step, in
  // order, on the thread of the rank that has the last of this process's stages, after
  // list_ended(). May be empty.
  std::function<void(std::int64_t step, StepResult result)> take_result = {};
};

}  // namespace penstock
