#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/data_parallel/replica_link.h"
#include "penstock/run/data_parallel/replicated_parameters.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// The ways of the ranks of this process to their replicas in other pipelines.
class ReplicaLinks {
 public:
  // Has every stage replicated that is neither replicated nor sharded, if there are replicas.
  // Throws ArgumentError if a stage was sharded for other replicas.
  ReplicaLinks(const ScheduleOptions& options, const Schedule& program, const StageList& stages,
               const Placement& placement, std::span<const int> local_ranks);

  // By place in the local ranks; null for a rank with nothing to gather or reduce.
  ReplicaLink* link(std::size_t rank) const { return links_[rank].get(); }
  int replica() const { return position_.index; }
  int num_replicas() const { return position_.count; }

  // Around a step. The first one, and the first one after a failure, compares the parameters of
  // the replicas, and throws ArgumentError if they differ.
  void begin_step(bool is_training, const Schedule& program);
  void end_step();
  std::exception_ptr fail_step(std::exception_ptr failure);

  // Makes the waits of all ranks of this process end. Safe from any thread.
  void stop() noexcept;

  // Between steps: what each replica tells, in their order.
  std::vector<at::Tensor> exchange(const at::Tensor& value);

  // In a step: the sum of what each replica gives.
  double sum_over_replicas(double value);

  // At the end of a step that trains, when the gradients of parameters that several stages use are
  // complete.
  void reduce_shared();

  // By local rank.
  std::vector<ParameterBytes> bytes(const StageList& stages, const Placement& placement) const;

 private:
  static constexpr int kNever = -1;

  void require_same_parameters() const;

  std::shared_ptr<RankGroup> group_;  // of the replicas; null without
  std::vector<int> local_ranks_;
  ReplicaPosition position_;
  std::unique_ptr<ReplicatedParameters> shared_;  // that several stages use; with the first rank
  std::vector<std::unique_ptr<ReplicaLink>> links_;
  std::vector<std::vector<DataParallelParameters*>> parameters_;  // by link
  int compared_at_ = kNever;  // recoveries of the group when the parameters were compared
};

}  // namespace penstock
