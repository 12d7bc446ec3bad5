#include "penstock/run/pipeline/pipeline_schedule.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/passes/keep_forwards.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/microbatch/merge.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/threads/rank_threads.h"
#include "penstock/run/transport/in_process/in_process_hub.h"

namespace penstock {
namespace {

StageList in_order(StageList stages) {
  if (stages.empty()) throw ArgumentError("a pipeline needs at least one stage");
  for (const auto& stage : stages) {
    if (stage == nullptr) throw ArgumentError("one of the stages is null");
  }
  std::sort(stages.begin(), stages.end(),
            [](const auto& left, const auto& right) { return left->index() < right->index(); });
  const int num_stages = static_cast<int>(stages.size());
  for (int index = 0; index < num_stages; ++index) {
    const PipelineStage& stage = *stages[static_cast<std::size_t>(index)];
    if (stage.num_stages() != num_stages) {
      throw ArgumentError(
          fmt::format("stage {} says that there are {}, but the pipeline was given {}",
                      stage.index(), counted(stage.num_stages(), "stage", "stages"), num_stages));
    }
    if (stage.index() != index) {
      throw ArgumentError(
          fmt::format("stage {} is {}; a pipeline needs each stage once", index,
                      stage.index() < index ? "there twice, or its place is taken" : "missing"));
    }
  }
  return stages;
}

// A program that ranks can run, proved to be valid for that many stages and microbatches.
Schedule make_program(Schedule schedule, Extent extent) {
  Schedule program =
      is_lowered(schedule) ? std::move(schedule) : lower(schedule, {.sharding = false});
  require_valid(program, {.extent = extent});
  return program;
}

int intra_op_threads_of(const ScheduleOptions& options, int num_ranks) {
  if (options.intra_op_threads > 0) return options.intra_op_threads;
  return std::max(1, at::get_num_threads() / num_ranks);
}

std::int64_t rows_of(const c10::IValue& target) {
  std::int64_t rows = -1;
  for_each_tensor(target, [&rows](const at::Tensor& tensor) {
    if (rows < 0 && tensor.dim() > 0) rows = tensor.size(0);
  });
  if (rows < 0) {
    throw ArgumentError(
        fmt::format("LossWeights::ByRows needs a target with a tensor that has rows, but it is {}",
                    describe(target)));
  }
  return rows;
}

std::vector<double> weights_of(const std::vector<c10::IValue>& targets,
                               const ScheduleOptions& options) {
  std::vector<double> weights(targets.size(), 1.0);
  if (!options.scale_grads) return weights;
  if (options.loss_weights == LossWeights::ByRows) {
    std::transform(targets.begin(), targets.end(), weights.begin(),
                   [](const c10::IValue& target) { return static_cast<double>(rows_of(target)); });
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

// Marks the pipeline as being in use, for one step.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& is_taken) : is_taken_(is_taken) {
    if (is_taken_.exchange(true)) {
      throw ArgumentError("the pipeline is in the middle of a step; it takes one at a time");
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Turn(Turn&&) = delete;
  Turn& operator=(Turn&&) = delete;
  ~Turn() { is_taken_.store(false); }

 private:
  std::atomic<bool>& is_taken_;
};

}  // namespace

class PipelineSchedule::Impl {
 public:
  Impl(StageList stages, Schedule schedule, ScheduleOptions options)
      : options_(std::move(options)),
        stages_(in_order(std::move(stages))),
        extent_{static_cast<int>(stages_.size()), options_.num_microbatches},
        program_(make_program(std::move(schedule), extent_)),
        eval_program_(make_program(keep_forwards(program_), extent_)),
        executor_options_{options_.custom_functions, options_.observers},
        wait_(wait_policy_for(program_.num_ranks(), options_.deadline)),
        hub_(program_.num_ranks(), extent_, wait_),
        progress_(program_.num_ranks()),
        threads_(program_.num_ranks(),
                 {.wait = wait_,
                  .intra_op_threads = intra_op_threads_of(options_, program_.num_ranks()),
                  .pins_threads = options_.pins_threads}),
        errors_(program_.ranks.size()) {
    make_executors(program_, executors_);
    make_executors(eval_program_, eval_executors_);
    for (const auto& stage : stages_) {
      for (std::string& name : stage->module().keywords()) keywords_.insert(std::move(name));
    }
  }

  StepResult step(const PresplitBatch& batch, const StepOptions& step_options) {
    if (!options_.loss) {
      throw ArgumentError(
          "step() trains, which needs ScheduleOptions::loss; to run forwards only, "
          "call eval()");
    }
    if (!has_backwards_) {
      throw ArgumentError("the schedule has no backwards to train with; call eval()");
    }
    if (!at::GradMode::is_enabled()) {
      throw ArgumentError(
          "step() trains, but gradients are switched off on this thread; call "
          "eval(), or leave the scope of the NoGradGuard");
    }
    if (batch.targets.empty()) {
      throw ArgumentError(
          "step() trains, which needs StepOptions::target; to run forwards only, "
          "call eval()");
    }
    return run(batch, step_options, true);
  }

  StepResult eval(const PresplitBatch& batch, const StepOptions& step_options) {
    if (!batch.targets.empty() && !options_.loss) {
      throw ArgumentError("a target is of no use without ScheduleOptions::loss");
    }
    return run(batch, step_options, false);
  }

  PresplitBatch split(std::vector<c10::IValue> inputs, const StepOptions& step_options) const {
    PresplitBatch batch;
    batch.inputs = split_microbatches({std::move(inputs), step_options.kwargs},
                                      options_.num_microbatches, options_.split);
    if (!step_options.target.isNone()) {
      batch.targets = split_value(step_options.target, options_.num_microbatches,
                                  options_.target_chunk_spec, "target");
    }
    return batch;
  }

  const ScheduleOptions& options() const { return options_; }
  const StageList& stages() const { return stages_; }
  const Schedule& program() const { return program_; }
  const Schedule& eval_program() const { return eval_program_; }

  std::vector<int> peak_activations() const {
    std::vector<int> peaks;
    for (const auto& executor : executors_) peaks.push_back(executor->peak_activations());
    return peaks;
  }

 private:
  void make_executors(const Schedule& program, std::vector<std::unique_ptr<Executor>>& executors) {
    const Placement placement = placement_of(program, extent_.num_stages);
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      std::vector<PipelineStage*> local;
      for (const int stage : placement.stages_of(rank)) {
        local.push_back(stages_[static_cast<std::size_t>(stage)].get());
      }
      executors.push_back(std::make_unique<Executor>(rank, program, local, hub_.endpoint(rank),
                                                     progress_, executor_options_));
    }
  }

  void require_batch(const PresplitBatch& batch) const {
    require_microbatches(batch.inputs, options_.num_microbatches);
    if (!batch.targets.empty() &&
        batch.targets.size() != static_cast<std::size_t>(options_.num_microbatches)) {
      throw ArgumentError(
          fmt::format("there are {} for {}",
                      counted(static_cast<long long>(batch.targets.size()), "target", "targets"),
                      counted(options_.num_microbatches, "microbatch", "microbatches")));
    }
    for (const auto& [name, value] : batch.inputs.front().kwargs) {
      if (!keywords_.contains(name)) {
        const std::vector<std::string_view> known(keywords_.begin(), keywords_.end());
        const std::string_view nearest = nearest_name(name, known);
        throw ArgumentError(
            fmt::format("no stage takes a keyword input {}{}", quote(name),
                        nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
      }
    }
  }

  StepResult run(const PresplitBatch& batch, const StepOptions& step_options, bool is_training) {
    const Turn turn(is_running_);
    require_batch(batch);
    const std::vector<double> weights = weights_of(batch.targets, options_);
    StepWork work{.number = num_steps_++,
                  .is_training = is_training,
                  .inputs = batch.inputs,
                  .targets = batch.targets,
                  .loss = &options_.loss,
                  .loss_keywords = &step_options.loss_kwargs,
                  .loss_weights = weights,
                  .keeps_outputs = step_options.return_outputs,
                  .outputs = {},
                  .losses = {}};
    if (work.keeps_outputs) work.outputs.resize(batch.inputs.size());
    work.losses.resize(batch.targets.size());
    for (const auto& stage : stages_) {
      stage->begin_step({is_training, options_.num_microbatches, options_.weight_gradients});
    }
    const Schedule& program = is_training ? program_ : eval_program_;
    for (const auto& observer : options_.observers) observer->step_begins(program);
    try {
      run_ranks(is_training ? executors_ : eval_executors_, work);
      if (is_training) pass_root_gradients();
    } catch (...) {
      hub_.reset();
      end_step();
      throw;
    }
    end_step();
    StepResult result{.output = {}, .losses = std::move(work.losses)};
    if (work.keeps_outputs) {
      result.output = merge_microbatches(work.outputs, options_.output_merge_spec);
    }
    return result;
  }

  void run_ranks(const std::vector<std::unique_ptr<Executor>>& executors, StepWork& work) {
    first_failure_.store(kNobody);
    threads_.run([&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      try {
        executors[index]->run(work);
      } catch (const StoppedError&) {
      } catch (...) {
        errors_[index] = std::current_exception();
        int nobody = kNobody;
        first_failure_.compare_exchange_strong(nobody, rank);
        hub_.endpoint(rank).stop();
      }
    });
    const int failed = first_failure_.load();
    if (failed == kNobody) return;
    const std::exception_ptr error = errors_[static_cast<std::size_t>(failed)];
    std::fill(errors_.begin(), errors_.end(), nullptr);
    std::rethrow_exception(error);
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

  static constexpr int kNobody = -1;

  ScheduleOptions options_;
  StageList stages_;
  Extent extent_;
  Schedule program_;
  Schedule eval_program_;
  bool has_backwards_ = !have_same_compute_order(program_, eval_program_);
  ExecutorOptions executor_options_;
  WaitPolicy wait_;
  InProcessHub hub_;
  ProgressBoard progress_;
  RankThreads threads_;
  std::vector<std::unique_ptr<Executor>> executors_;       // by rank
  std::vector<std::unique_ptr<Executor>> eval_executors_;  // by rank
  std::set<std::string> keywords_;                         // that some stage takes
  std::vector<std::exception_ptr> errors_;                 // by rank
  std::atomic<int> first_failure_ = kNobody;
  std::atomic<bool> is_running_ = false;
  std::int64_t num_steps_ = 0;
};

PipelineSchedule::PipelineSchedule(StageList stages, Schedule schedule, ScheduleOptions options)
    : impl_(std::make_unique<Impl>(std::move(stages), std::move(schedule), std::move(options))) {}

PipelineSchedule::~PipelineSchedule() = default;

StepResult PipelineSchedule::step(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return impl_->step(impl_->split(std::move(inputs), options), options);
}
StepResult PipelineSchedule::step(const PresplitBatch& batch, const StepOptions& options) {
  return impl_->step(batch, options);
}
StepResult PipelineSchedule::eval(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return impl_->eval(impl_->split(std::move(inputs), options), options);
}
StepResult PipelineSchedule::eval(const PresplitBatch& batch, const StepOptions& options) {
  return impl_->eval(batch, options);
}

int PipelineSchedule::num_ranks() const {
  return impl_->program().num_ranks();
}
int PipelineSchedule::num_microbatches() const {
  return impl_->options().num_microbatches;
}
const StageList& PipelineSchedule::stages() const {
  return impl_->stages();
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

}  // namespace penstock
