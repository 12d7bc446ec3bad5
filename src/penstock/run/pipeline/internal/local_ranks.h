#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/executor/executor.h"
#include "penstock/run/pipeline/internal/replica_links.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/threads/rank_threads.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// The ranks of a pipeline that run in this process, a thread each.
class LocalRanks {
 public:
  LocalRanks(std::vector<int> ranks, Fabric& fabric, ReplicaLinks& replicas,
             const RankThreadOptions& options);

  // One executor per rank for `program`. What is referred to must outlive this object.
  using Executors = std::vector<std::unique_ptr<Executor>>;
  Executors make_executors(const Schedule& program, const StageList& stages,
                           const ExecutorOptions& options) const;

  // Calls `work` for all ranks at once, with their place among those of this process, each on its
  // thread. Throws what the first rank to fail has thrown, or StoppedError if ranks were stopped
  // but none of them has failed.
  void run(const std::function<void(int place)>& work);

 private:
  static constexpr int kNobody = -1;

  void stop() noexcept;

  std::vector<int> ranks_;
  Fabric& fabric_;
  ReplicaLinks& replicas_;
  RankThreads threads_;
  std::vector<std::exception_ptr> errors_;  // in the order of ranks_
  std::atomic<int> first_failure_ = kNobody;
  std::atomic<bool> was_stopped_ = false;
};

}  // namespace penstock
