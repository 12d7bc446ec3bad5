#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/pipeline/internal/batch.h"
#include "penstock/run/pipeline/internal/local_ranks.h"
#include "penstock/run/pipeline/internal/replica_links.h"
#include "penstock/run/pipeline/internal/shared_exchange.h"
#include "penstock/run/pipeline/internal/step_batches.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/pipeline/rank_exchange.h"
#include "penstock/run/pipeline/step_series.h"
#include "penstock/run/stage/shared_gradients.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// What a pipeline lends to a series of steps.
struct SeriesParts {
  const ScheduleOptions& options;
  const StageList& stages;  // of this process
  LocalEnds ends;
  const Schedule& program;
  const std::vector<int>& local_ranks;
  const LocalRanks::Executors& executors;
  ExchangeKeys exchange_keys;
  Fabric& fabric;
  const ReplicaLinks& replicas;
  SharedGradients& shared_gradients;
  const SharedExchange& shared_exchange;
};

// The loop over the steps of a series, around that of the executor over the actions of a list.
class SeriesRunner {
 public:
  // `first_step` is the number of the transport's step that comes next. Throws ArgumentError if
  // stages on several ranks of this process share a parameter; with replicas, if any stages do, or
  // if loss weights depend on the batch.
  SeriesRunner(const SeriesParts& parts, const StepSeries& series, std::int64_t first_step,
               const std::function<ReadyBatch(StepBatch batch)>& make_ready);

  // All steps of one rank, on its thread. `place` is that among the ranks of this process.
  void run_rank(int place);

  // The number of the transport's step that comes next.
  std::int64_t next_step() const { return next_step_; }

 private:
  struct Rank {
    int rank = 0;
    std::vector<PipelineStage*> stages;
    std::unique_ptr<SharedGradients> shared_gradients;  // null: those of the pipeline
  };

  Rank make_rank(int rank, const Placement& placement) const;
  void run_list(int place, StepWork& work);
  // What the replicas of the rank tell, when all of them are at the end of their lists.
  std::vector<at::Tensor> exchange_with_replicas(int place, const at::Tensor& value) const;

  SeriesParts parts_;
  const StepSeries& series_;
  std::int64_t first_step_;
  std::int64_t next_step_;
  std::vector<Rank> ranks_;  // of this process
  int last_place_ = 0;       // of the rank that has the last stage of this process
  StepBatches batches_;
};

}  // namespace penstock
