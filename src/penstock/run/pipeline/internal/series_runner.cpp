#include "penstock/run/pipeline/internal/series_runner.h"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/pipeline/internal/shared_uses.h"
#include "penstock/run/pipeline/internal/stage_list.h"

namespace penstock {
namespace {

// The gradient of an input would have to be taken back if its list is run again.
void require_no_gradients(const PresplitBatch& batch, std::int64_t step) {
  const auto require = [step](const c10::IValue& value) {
    for_each_tensor(value, [step](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.requires_grad()) return;
      throw ArgumentError(
          fmt::format("an input of step {} requires a gradient, which a series of steps cannot "
                      "give; call step()",
                      step));
    });
  };
  for (const Microbatch& microbatch : batch.inputs) {
    for (const c10::IValue& input : microbatch.args) require(input);
    for (const auto& [name, input] : microbatch.kwargs) require(input);
  }
}

void require_one_rank_each(const std::vector<SharedUse>& uses, const Placement& placement) {
  std::map<std::string, int> stages;
  for (const SharedUse& use : uses) {
    const auto [first, is_new] = stages.try_emplace(use.name, use.stage);
    const int first_rank = placement.rank_of(first->second);
    const int rank = placement.rank_of(use.stage);
    if (rank == first_rank) continue;
    throw ArgumentError(fmt::format(
        "stage {} on rank {} and stage {} on rank {} use the parameter {}, so neither rank can "
        "step "
        "it on its own; put both stages on one rank, make each rank a process, or call step()",
        first->second, first_rank, use.stage, rank, quote(use.name)));
  }
}

// What replicas would have to agree on for each step before, or after, the list of a single rank.
void require_independent_lists(const ScheduleOptions& options, const std::vector<SharedUse>& uses) {
  if (options.loss_weights == LossWeights::ByRows) {
    throw ArgumentError(
        "LossWeights::ByRows counts the rows of all replicas before each step, which a series of "
        "steps does not; use LossWeights::Equal, or call step()");
  }
  if (!uses.empty()) {
    throw ArgumentError(fmt::format(
        "stage {} uses the parameter {} together with other stages, which replicas cannot reduce "
        "in a series of steps; call step()",
        uses.front().stage, quote(uses.front().name)));
  }
}

}  // namespace

SeriesRunner::SeriesRunner(const SeriesParts& parts, const StepSeries& series,
                           std::int64_t first_step,
                           const std::function<ReadyBatch(StepBatch batch)>& make_ready)
    : parts_(parts),
      series_(series),
      first_step_(first_step),
      next_step_(first_step),
      batches_(static_cast<int>(parts.local_ranks.size()), [this, make_ready](std::int64_t step) {
        ReadyBatch batch = make_ready(series_.batch(step));
        require_no_gradients(batch.parts, step);
        return batch;
      }) {
  const Placement placement = placement_of(parts.program, extent_of(parts.program).num_stages);
  const std::vector<SharedUse> uses = shared_uses_of(parts.stages);
  if (parts.replicas.num_replicas() > 1) require_independent_lists(parts.options, uses);
  if (parts.local_ranks.size() > 1) require_one_rank_each(uses, placement);
  for (const int rank : parts.local_ranks) {
    ranks_.push_back(make_rank(rank, placement));
    if (ranks_.back().stages.back() == parts.stages.back().get()) {
      last_place_ = static_cast<int>(ranks_.size()) - 1;
    }
  }
}

SeriesRunner::Rank SeriesRunner::make_rank(int rank, const Placement& placement) const {
  Rank made{.rank = rank,
            .stages = stages_of_rank(parts_.stages, placement, rank),
            .shared_gradients = nullptr};
  if (parts_.local_ranks.size() == 1) return made;
  std::vector<SharedUse> uses = shared_uses_of(parts_.stages);
  std::erase_if(uses, [&](const SharedUse& use) { return placement.rank_of(use.stage) != rank; });
  made.shared_gradients = make_shared_gradients(std::move(uses), parts_.program);
  return made;
}

void SeriesRunner::run_rank(int place) {
  const Rank& rank = ranks_[static_cast<std::size_t>(place)];
  RankExchange exchange(parts_.fabric, rank.rank, parts_.exchange_keys, first_step_);
  const std::unique_ptr<RankUpdate> update = series_.make_update(rank.rank, rank.stages);
  for (std::int64_t step = 0; step < series_.num_steps; ++step) {
    const ReadyBatch& batch = batches_.batch(step);
    for (;;) {
      StepWork work = make_work(
          batch.parts, batch.loss_weights, batch.options, parts_.options, parts_.ends,
          {.number = exchange.step(),
           .random_seed = batch.random_seed,
           .first_microbatch = parts_.replicas.replica() * parts_.options.num_microbatches});
      run_list(place, work);
      const std::vector<at::Tensor> from_replicas =
          exchange_with_replicas(place, update->tell_replicas());
      if (update->list_ended(step, from_replicas, exchange)) {
        if (place == last_place_ && series_.take_result) {
          series_.take_result(step, merge_results(results_of(work), parts_.options));
        }
        break;
      }
      exchange.new_step();
    }
    batches_.done(step);
  }
  update->series_ended(exchange);
  if (place == 0) next_step_ = exchange.step() + 1;
}

void SeriesRunner::run_list(int place, StepWork& work) {
  const Rank& rank = ranks_[static_cast<std::size_t>(place)];
  const bool is_alone = rank.shared_gradients == nullptr;
  SharedGradients& shared = is_alone ? parts_.shared_gradients : *rank.shared_gradients;
  shared.begin_step();
  for (PipelineStage* stage : rank.stages) {
    stage->begin_step(
        {true, parts_.options.num_microbatches, parts_.options.weight_gradients, &shared});
  }
  // So that those who watch this process can tell one list from the next.
  if (is_alone) parts_.fabric.begin_step(parts_.program);
  if (ReplicaLink* link = parts_.replicas.link(static_cast<std::size_t>(place)); link != nullptr) {
    link->begin_list(is_alone ? ReplicaLink::Watch::Afresh : ReplicaLink::Watch::Same);
  }
  parts_.executors[static_cast<std::size_t>(place)]->run(work);
  if (is_alone) parts_.shared_exchange.run(parts_.fabric, shared);
  for (PipelineStage* stage : rank.stages) stage->end_step();
}

std::vector<at::Tensor> SeriesRunner::exchange_with_replicas(int place,
                                                             const at::Tensor& value) const {
  ReplicaLink* link = parts_.replicas.link(static_cast<std::size_t>(place));
  if (link == nullptr) return {value};
  std::vector<at::Tensor> told;
  const std::string what = fmt::format("what rank {} tells at the end of its list",
                                       ranks_[static_cast<std::size_t>(place)].rank);
  for (const Message& message : link->exchange({value}, what)) {
    told.push_back(message.front().toTensor());
  }
  return told;
}

}  // namespace penstock
