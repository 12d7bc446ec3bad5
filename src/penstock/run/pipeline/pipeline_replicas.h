#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/threads/rank_threads.h"

namespace penstock {

class ReplicaHubs;

// One of several pipelines of a process that train together.
struct Replica {
  int index = 0;
  int count = 1;
  // For ScheduleOptions::data_group. Null if it is the only one here: it has no other replicas, or
  // they are in other processes, which make() knows of.
  std::shared_ptr<RankGroup> group;
};

// Pipelines of the same model, each with all ranks as threads of this process, that train together:
// each on its part of the batch, with the gradients of all. For one caller at a time.
class PipelineReplicas {
 public:
  // `make` is called once per replica, in their order, and makes its pipeline, with stages of its
  // own that have the same parameters as those of the others.
  using Make = std::function<std::unique_ptr<PipelineSchedule>(const Replica& replica)>;
  PipelineReplicas(int num_replicas, const Make& make);
  PipelineReplicas(const PipelineReplicas&) = delete;
  PipelineReplicas& operator=(const PipelineReplicas&) = delete;
  PipelineReplicas(PipelineReplicas&&) = delete;
  PipelineReplicas& operator=(PipelineReplicas&&) = delete;
  ~PipelineReplicas();

  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  PipelineSchedule& replica(int index) { return *replicas_[static_cast<std::size_t>(index)]; }

  // Splits the batch into num_replicas x num_microbatches microbatches, of which each replica gets
  // as many in a row; otherwise like the same functions of a pipeline. Outputs and losses are those
  // of the whole batch. If a replica fails, the others are stopped; throws what the first one
  // threw.
  StepResult step(std::vector<c10::IValue> inputs, const StepOptions& options = {});
  StepResult eval(std::vector<c10::IValue> inputs, const StepOptions& options = {});

  // Calls `work` for all replicas at once, each on the thread that step() gives it, and returns
  // when all calls have. For what the replicas must do together, such as to gather parameters.
  // Throws what the first call to fail has thrown.
  void run(const std::function<void(int replica)>& work);

 private:
  StepResult run_batch(std::vector<c10::IValue> inputs, const StepOptions& options,
                       bool is_training);

  std::shared_ptr<ReplicaHubs> hubs_;
  std::vector<std::unique_ptr<PipelineSchedule>> replicas_;
  std::unique_ptr<RankThreads> threads_;
};

}  // namespace penstock
