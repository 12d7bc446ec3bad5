#include "penstock/run/pipeline/pipeline_schedule.h"

#include <atomic>
#include <exception>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/base/error.h"
#include "penstock/base/one_caller.h"
#include "penstock/plan/passes/keep_forwards.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipeline/internal/batch.h"
#include "penstock/run/pipeline/internal/local_ranks.h"
#include "penstock/run/pipeline/internal/rank_setup.h"
#include "penstock/run/pipeline/internal/replica_links.h"
#include "penstock/run/pipeline/internal/require_options.h"
#include "penstock/run/pipeline/internal/series_runner.h"
#include "penstock/run/pipeline/internal/shared_exchange.h"
#include "penstock/run/pipeline/internal/shared_uses.h"
#include "penstock/run/pipeline/internal/stage_list.h"
#include "penstock/run/pipeline/rank_exchange.h"
#include "penstock/run/pipeline/step_series.h"
#include "penstock/run/random/random_scope.h"

namespace penstock {
namespace {

LocalEnds ends_of(const StageList& stages) {
  return {.has_first_stage = stages.front()->is_first(),
          .has_last_stage = stages.back()->is_last()};
}

// What trains, for messages.
constexpr const char* kStep = "step()";
constexpr const char* kSeries = "a series of steps";

constexpr const char* kIsRunning =
    "the pipeline is in the middle of a step; it takes one at a time";

}  // namespace

class PipelineSchedule::Impl {
 public:
  Impl(StageList stages, Schedule schedule, ScheduleOptions options)
      : options_(checked(std::move(options))),
        stages_(in_order(std::move(stages), options_.group == nullptr)),
        ends_(ends_of(stages_)),
        extent_{stages_.front()->num_stages(), options_.num_microbatches},
        program_(make_program(std::move(schedule), extent_, lower_options(options_, stages_))),
        eval_program_(
            make_program(keep_forwards(program_), extent_, lower_options(options_, stages_))),
        local_ranks_(local_ranks_of(options_, program_)),
        executor_options_{options_.custom_functions, options_.observers} {
    require_options(options_);
    const Placement placement = placement_of(program_, extent_.num_stages);
    require_local_stages(stages_, placement, local_ranks_);
    if (has_backwards_ && (options_.loss || !ends_.has_last_stage)) {
      const auto& replicas = options_.data_group;
      require_own_parameters(stages_, placement, replicas != nullptr && replicas->num_ranks() > 1);
    }
    std::vector<SharedUse> shared_uses = shared_uses_of(stages_);
    shared_exchange_.emplace(shared_uses, placement, extent_, local_ranks_);
    shared_gradients_ = make_shared_gradients(std::move(shared_uses), program_);
    exchange_keys_ = {.first_stage = shared_exchange_->extent().num_stages,
                      .num_ranks = program_.num_ranks(),
                      .num_microbatches = options_.num_microbatches};
    fabric_ = connect(options_, program_, stages_, shared_exchange_->extent(),
                      exchange_keys_.num_stages());
    replicas_.emplace(options_, program_, stages_, placement, local_ranks_);
    const CoreUse cores = core_use_of(options_, static_cast<int>(local_ranks_.size()));
    ranks_ = std::make_unique<LocalRanks>(local_ranks_, *fabric_, *replicas_,
                                          thread_options(options_, cores));
    executors_ = ranks_->make_executors(program_, stages_, executor_options_);
    eval_executors_ = ranks_->make_executors(eval_program_, stages_, executor_options_);
    keywords_ = options_.group == nullptr ? keywords_of(stages_) : fabric_->keywords();
  }

  MicrobatchResults step(const PresplitBatch& batch, const StepOptions& step_options) {
    require_training(kStep);
    require_target(batch, kStep);
    return run(batch, step_options, true);
  }

  MicrobatchResults eval(const PresplitBatch& batch, const StepOptions& step_options) {
    if (ends_.has_last_stage && !batch.targets.empty() && !options_.loss) {
      throw ArgumentError("a target is of no use without ScheduleOptions::loss");
    }
    return run(batch, step_options, false);
  }

  void run_series(const StepSeries& series) {
    require_training(kSeries);
    const OneCaller caller(is_running_, kIsRunning);
    SeriesRunner runner({.options = options_,
                         .stages = stages_,
                         .ends = ends_,
                         .program = program_,
                         .local_ranks = local_ranks_,
                         .executors = executors_,
                         .exchange_keys = exchange_keys_,
                         .fabric = *fabric_,
                         .replicas = *replicas_,
                         .shared_gradients = *shared_gradients_,
                         .shared_exchange = *shared_exchange_},
                        series, num_steps_, [this](StepBatch batch) { return ready(batch); });
    in_step(program_, true, [&] {
      ranks_->run([&](int place) { runner.run_rank(place); });
      num_steps_ = runner.next_step();
    });
  }

  std::vector<at::Tensor> exchange(const at::Tensor& value) {
    if (options_.group == nullptr) return {value};
    const OneCaller caller(is_running_, kIsRunning);
    std::vector<at::Tensor> values;
    with_others(program_, [&] {
      std::vector<RankExchange> exchanges;
      for (const int rank : local_ranks_) {
        exchanges.emplace_back(*fabric_, rank, exchange_keys_, num_steps_);
        exchanges.back().tell(exchanges.size() == 1 ? value : at::Tensor());
      }
      for (RankExchange& exchange : exchanges) values = exchange.hear();
      num_steps_ = exchanges.front().step() + 1;
    });
    std::erase_if(values, [](const at::Tensor& other) { return !other.defined(); });
    return values;
  }

  std::vector<at::Tensor> exchange_with_replicas(const at::Tensor& value) {
    const OneCaller caller(is_running_, kIsRunning);
    return replicas_->exchange(value);
  }

  PresplitBatch split(std::vector<c10::IValue> inputs, const StepOptions& step_options) const {
    return split_batch(std::move(inputs), step_options, options_, ends_);
  }

  const ScheduleOptions& options() const { return options_; }
  const StageList& stages() const { return stages_; }
  const Schedule& program() const { return program_; }
  const Schedule& eval_program() const { return eval_program_; }

  std::vector<at::Tensor> parameters() const { return parameters_of(stages_); }

  std::vector<int> peak_activations() const {
    std::vector<int> peaks;
    for (const auto& executor : executors_) peaks.push_back(executor->peak_activations());
    return peaks;
  }

  std::vector<ParameterBytes> parameter_bytes() const {
    return replicas_->bytes(stages_, placement_of(program_, extent_.num_stages));
  }

 private:
  // The part of the caller's batch that stages of this process read.
  const PresplitBatch& local_part(const PresplitBatch& batch) {
    if (ends_.has_first_stage && ends_.has_last_stage) return batch;
    local_batch_ = keep_local(batch, options_, ends_);
    return local_batch_;
  }

  // `what` trains: kStep or kSeries.
  void require_training(const char* what) const {
    if (ends_.has_last_stage && !options_.loss) {
      throw ArgumentError(fmt::format(
          "{} trains, which needs ScheduleOptions::loss; to run forwards only, call eval()", what));
    }
    if (!has_backwards_) {
      throw ArgumentError("the schedule has no backwards to train with; call eval()");
    }
    if (!at::GradMode::is_enabled()) {
      throw ArgumentError(
          fmt::format("{} trains, but gradients are switched off on this thread; call eval(), or "
                      "leave the scope of the NoGradGuard",
                      what));
    }
  }

  void require_target(const PresplitBatch& batch, const char* what) const {
    if (ends_.has_last_stage && batch.targets.empty() && options_.loss.needs_target()) {
      throw ArgumentError(fmt::format(
          "{} trains, which needs StepOptions::target; to run forwards only, call eval()", what));
    }
  }

  // Of the part of a batch that stages of this process read.
  void require_fit(const PresplitBatch& batch) const {
    require_batch(batch, options_.num_microbatches);
    require_no_useless_target(batch, options_.loss);
    if (keywords_) require_keywords(batch, *keywords_);
  }

  // Evaluations have numbers of their own: they do not change what the next step() draws.
  std::uint64_t next_seed(const StepOptions& step_options, bool is_training) {
    const std::uint64_t number = is_training ? num_trained_++ : ~num_evaluated_++;
    return step_options.seed ? *step_options.seed : step_seed(number);
  }

  MicrobatchResults run(const PresplitBatch& given, const StepOptions& step_options,
                        bool is_training) {
    const OneCaller caller(is_running_, kIsRunning);
    const PresplitBatch& batch = local_part(given);
    require_fit(batch);
    std::vector<double> weights = relative_weights(batch, options_, ends_);
    StepWork work =
        make_work(batch, weights, step_options, options_, ends_,
                  {.number = num_steps_++,
                   .is_training = is_training,
                   .random_seed = next_seed(step_options, is_training),
                   .first_microbatch = replicas_->replica() * options_.num_microbatches});
    in_step(is_training ? program_ : eval_program_, is_training, [&] {
      if (is_training) scale(weights);
      shared_gradients_->begin_step();
      for (const auto& stage : stages_) {
        stage->begin_step({is_training, options_.num_microbatches, options_.weight_gradients,
                           shared_gradients_.get()});
      }
      const LocalRanks::Executors& executors = is_training ? executors_ : eval_executors_;
      ranks_->run([&](int place) { executors[static_cast<std::size_t>(place)]->run(work); });
      if (is_training) {
        shared_exchange_->run(*fabric_, *shared_gradients_);
        replicas_->reduce_shared();
        pass_root_gradients();
      }
    });
    return results_of(work);
  }

  // Does something that needs other ranks.
  template <typename Work>
  void with_others(const Schedule& program, const Work& work) {
    fabric_->begin_step(program);
    try {
      work();
    } catch (...) {
      const std::exception_ptr failure = fabric_->fail_step(std::current_exception());
      std::rethrow_exception(replicas_->fail_step(failure));
    }
    fabric_->end_step();
    replicas_->end_step();
  }

  // The same, with stages, replicas and observers.
  template <typename Work>
  void in_step(const Schedule& program, bool is_training, const Work& work) {
    with_others(program, [&] {
      for (const auto& observer : options_.observers) observer->step_begins(program);
      try {
        replicas_->begin_step(is_training, program);
        work();
      } catch (...) {
        end_step();
        throw;
      }
      end_step();
    });
  }

  ReadyBatch ready(StepBatch& given) {
    ReadyBatch batch;
    batch.parts = split(std::move(given.inputs), given.options);
    batch.options = std::move(given.options);
    require_target(batch.parts, kSeries);
    require_fit(batch.parts);
    batch.loss_weights = relative_weights(batch.parts, options_, ends_);
    scale(batch.loss_weights);
    batch.random_seed = next_seed(batch.options, true);
    return batch;
  }

  // Turns relative weights into those of the mean over all replicas, if that is what is wanted.
  void scale(std::vector<double>& weights) {
    if (!options_.scale_grads || weights.empty()) return;
    const double own = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double total = options_.loss_weights == LossWeights::ByRows
                             ? replicas_->sum_over_replicas(own)
                             : own * replicas_->num_replicas();
    for (double& weight : weights) weight /= total;
  }

  // Inputs that require a gradient get it from one backward of the caller's own graph, as if the
  // whole batch had gone through the model at once.
  void pass_root_gradients() {
    torch::autograd::variable_list tensors;
    torch::autograd::variable_list gradients;
    for (const auto& stage : stages_) {
      for (const RootGradient& root : stage->root_gradients()) {
        tensors.push_back(root.tensor);
        gradients.push_back(root.gradient);
      }
    }
    if (!tensors.empty()) torch::autograd::backward(tensors, gradients);
  }

  void end_step() {
    for (const auto& observer : options_.observers) observer->step_ends();
    for (const auto& stage : stages_) stage->end_step();
  }

  ScheduleOptions options_;
  StageList stages_;  // of this process
  LocalEnds ends_;
  Extent extent_;
  Schedule program_;
  Schedule eval_program_;
  bool has_backwards_ = !have_same_compute_order(program_, eval_program_);
  std::vector<int> local_ranks_;
  ExecutorOptions executor_options_;
  std::unique_ptr<Fabric> fabric_;
  std::optional<ReplicaLinks> replicas_;
  std::unique_ptr<LocalRanks> ranks_;
  LocalRanks::Executors executors_;
  LocalRanks::Executors eval_executors_;
  std::optional<std::set<std::string>> keywords_;  // that some stage takes, if all are known
  PresplitBatch local_batch_;
  std::atomic<bool> is_running_ = false;
  std::int64_t num_steps_ = 0;
  std::uint64_t num_trained_ = 0;
  std::uint64_t num_evaluated_ = 0;
  std::unique_ptr<SharedGradients> shared_gradients_;
  std::optional<SharedExchange> shared_exchange_;
  ExchangeKeys exchange_keys_;
};

PipelineSchedule::PipelineSchedule(StageList stages, Schedule schedule, ScheduleOptions options)
    : impl_(std::make_unique<Impl>(std::move(stages), std::move(schedule), std::move(options))) {}

PipelineSchedule::~PipelineSchedule() = default;

StepResult PipelineSchedule::step(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return step(impl_->split(std::move(inputs), options), options);
}
StepResult PipelineSchedule::step(const PresplitBatch& batch, const StepOptions& options) {
  return merge_results(impl_->step(batch, options), this->options());
}
StepResult PipelineSchedule::step(NoInputs /*none*/, const StepOptions& options) {
  return step(std::vector<c10::IValue>(), options);
}
void PipelineSchedule::run_series(const StepSeries& series) {
  impl_->run_series(series);
}
std::vector<at::Tensor> PipelineSchedule::exchange(const at::Tensor& value) {
  return impl_->exchange(value);
}
std::vector<at::Tensor> PipelineSchedule::exchange_with_replicas(const at::Tensor& value) {
  return impl_->exchange_with_replicas(value);
}
StepResult PipelineSchedule::eval(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return eval(impl_->split(std::move(inputs), options), options);
}
StepResult PipelineSchedule::eval(const PresplitBatch& batch, const StepOptions& options) {
  return merge_results(impl_->eval(batch, options), this->options());
}
StepResult PipelineSchedule::eval(NoInputs /*none*/, const StepOptions& options) {
  return eval(std::vector<c10::IValue>(), options);
}

MicrobatchResults PipelineSchedule::run_unmerged(const PresplitBatch& batch,
                                                 const StepOptions& options, bool is_training) {
  return is_training ? impl_->step(batch, options) : impl_->eval(batch, options);
}

int PipelineSchedule::num_ranks() const {
  return impl_->program().num_ranks();
}
int PipelineSchedule::num_microbatches() const {
  return impl_->options().num_microbatches;
}
const ScheduleOptions& PipelineSchedule::options() const {
  return impl_->options();
}
const StageList& PipelineSchedule::stages() const {
  return impl_->stages();
}
std::vector<at::Tensor> PipelineSchedule::parameters() const {
  return impl_->parameters();
}
const Schedule& PipelineSchedule::program() const {
  return impl_->program();
}
const Schedule& PipelineSchedule::eval_program() const {
  return impl_->eval_program();
}
std::vector<int> PipelineSchedule::peak_activations() const {
  return impl_->peak_activations();
}
std::vector<ParameterBytes> PipelineSchedule::parameter_bytes() const {
  return impl_->parameter_bytes();
}

}  // namespace penstock
