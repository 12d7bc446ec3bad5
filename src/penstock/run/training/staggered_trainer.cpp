#include "penstock/run/training/staggered_trainer.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/optimizer/optimizer_state.h"
#include "penstock/run/training/internal/staggered_rank.h"

namespace penstock {
namespace {

// Each tensor once.
std::vector<at::Tensor> buffers_of(const std::vector<PipelineStage*>& stages) {
  std::vector<at::Tensor> buffers;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const PipelineStage* stage : stages) {
    for (const auto& [name, buffer] : stage->module().named_buffers()) {
      if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second) {
        buffers.push_back(buffer);
      }
    }
  }
  return buffers;
}

// What `optimizer` trains beyond `known`: the stage of a callable does not know its parameters.
std::vector<at::Tensor> unknown_parameters_of(const torch::optim::Optimizer& optimizer,
                                              const std::vector<at::Tensor>& known) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : known) seen.insert(parameter.unsafeGetTensorImpl());
  std::vector<at::Tensor> unknown;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) unknown.push_back(parameter);
    }
  }
  return unknown;
}

// Brings together what a step returns and how it ended. Used by one thread.
class Outcomes {
 public:
  Outcomes(std::int64_t first_step, const std::function<void(StepOutcome outcome)>& take)
      : first_step_(first_step), take_(take) {}

  void add_result(std::int64_t step, StepResult result) {
    outcome_of(step).result = std::move(result);
    part_is_there(step);
  }
  void settle(std::int64_t step, const GradientNorm& gradients, bool was_rolled_back) {
    StepOutcome& outcome = outcome_of(step);
    outcome.gradients = gradients;
    outcome.was_rolled_back = was_rolled_back;
    part_is_there(step);
  }

 private:
  struct Entry {
    StepOutcome outcome;
    int num_parts = 0;  // of the result and the end
  };

  StepOutcome& outcome_of(std::int64_t step) { return entries_[step].outcome; }
  void part_is_there(std::int64_t step) {
    Entry& entry = entries_[step];
    if (++entry.num_parts < 2) return;
    StepOutcome outcome = std::move(entry.outcome);
    entries_.erase(step);
    outcome.step = first_step_ + step;
    take_(std::move(outcome));
  }

  std::int64_t first_step_;
  const std::function<void(StepOutcome outcome)>& take_;
  std::map<std::int64_t, Entry> entries_;
};

}  // namespace

class StaggeredTrainer::Impl {
 public:
  Impl(PipelineSchedule& pipeline, const MakeOptimizer& make_optimizer, StaggeredOptions options)
      : pipeline_(pipeline), options_(std::move(options)) {
    judge_gradients({}, options_.max_norm);  // throws if that is no limit
    std::map<int, std::vector<PipelineStage*>> stages;
    const Placement placement =
        placement_of(pipeline.program(), extent_of(pipeline.program()).num_stages);
    for (const auto& stage : pipeline.stages()) {
      stages[placement.rank_of(stage->index())].push_back(stage.get());
    }
    last_rank_ = placement.rank_of(pipeline.stages().back()->index());
    for (const auto& [rank, own] : stages) add_rank(rank, own, make_optimizer);
  }

  void run(const StaggeredSteps& steps);

  std::vector<torch::optim::Optimizer*> optimizers() const {
    std::vector<torch::optim::Optimizer*> list;
    list.reserve(optimizers_.size());
    for (const auto& optimizer : optimizers_) list.push_back(optimizer.get());
    return list;
  }

 private:
  void add_rank(int rank, const std::vector<PipelineStage*>& stages,
                const MakeOptimizer& make_optimizer) {
    std::vector<at::Tensor> parameters;
    for (const PipelineStage* stage : stages) {
      for (at::Tensor& parameter : stage->parameters()) parameters.push_back(std::move(parameter));
    }
    std::unique_ptr<torch::optim::Optimizer> optimizer = make_optimizer(parameters);
    if (optimizer == nullptr) {
      throw ArgumentError(fmt::format("rank {} was given no optimizer", rank));
    }
    optimizer_name(*optimizer);  // throws if its state is not known
    CountedParameters counted = counted_parameters(stages, pipeline_.stages());
    const std::vector<at::Tensor> unknown = unknown_parameters_of(*optimizer, parameters);
    require_replicated(rank, unknown);
    for (const at::Tensor& parameter : unknown) {
      parameters.push_back(parameter);
      counted.whole.push_back(parameter);
    }
    models_.emplace(rank, std::make_unique<RankModel>(
                              RankModel{.rank = rank,
                                        .optimizer = *optimizer,
                                        .parameters = std::move(parameters),
                                        .counted = std::move(counted),
                                        .snapshot = Snapshot(*optimizer, buffers_of(stages))}));
    optimizers_.push_back(std::move(optimizer));
  }

  // What stages do not know, replicas do not reduce: each would see other gradients, and decide
  // otherwise than the rest whether a step has to be taken back.
  void require_replicated(int rank, const std::vector<at::Tensor>& unknown) const {
    const std::shared_ptr<RankGroup>& replicas = pipeline_.options().data_group;
    if (unknown.empty() || replicas == nullptr || replicas->num_ranks() == 1) return;
    throw ArgumentError(fmt::format(
        "the optimizer of rank {} trains {} that no stage of the rank has, so replicas do not add "
        "up its gradients; give the stage a module with all its parameters",
        rank, counted(static_cast<long long>(unknown.size()), "tensor", "tensors")));
  }

  PipelineSchedule& pipeline_;
  StaggeredOptions options_;
  int last_rank_ = 0;  // has the last stage of this process
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;  // by rank, ascending
  std::map<int, std::unique_ptr<RankModel>> models_;                  // by rank
};

void StaggeredTrainer::Impl::run(const StaggeredSteps& steps) {
  if (!steps.batch) throw ArgumentError("staggered steps need StaggeredSteps::batch");
  Outcomes outcomes(steps.first, steps.take_outcome);
  const bool tells = static_cast<bool>(steps.take_outcome);
  StepSeries series{.num_steps = steps.count,
                    .batch = [&](std::int64_t step) { return steps.batch(steps.first + step); },
                    .make_update =
                        [&](int rank, std::span<PipelineStage* const> /*stages*/) {
                          StaggeredRules rules{.max_norm = options_.max_norm,
                                               .learning_rate = options_.learning_rate,
                                               .settled = {}};
                          if (tells && rank == last_rank_) {
                            rules.settled = [&](std::int64_t step, const GradientNorm& gradients,
                                                bool was_rolled_back) {
                              outcomes.settle(step, gradients, was_rolled_back);
                            };
                          }
                          return std::make_unique<StaggeredRank>(*models_.at(rank),
                                                                 std::move(rules), steps.first);
                        }};
  if (tells) {
    series.take_result = [&](std::int64_t step, StepResult result) {
      outcomes.add_result(step, std::move(result));
    };
  }
  pipeline_.run_series(series);
}

StaggeredTrainer::StaggeredTrainer(PipelineSchedule& pipeline, const MakeOptimizer& make_optimizer,
                                   StaggeredOptions options)
    : impl_(std::make_unique<Impl>(pipeline, make_optimizer, std::move(options))) {}

StaggeredTrainer::~StaggeredTrainer() = default;

void StaggeredTrainer::run(const StaggeredSteps& steps) {
  impl_->run(steps);
}

std::vector<torch::optim::Optimizer*> StaggeredTrainer::optimizers() const {
  return impl_->optimizers();
}

}  // namespace penstock
