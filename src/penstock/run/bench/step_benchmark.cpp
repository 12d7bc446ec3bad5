#include "penstock/run/bench/step_benchmark.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/keep_forwards.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/simulator/simulate.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/measure/timeline_recorder.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"
#include "penstock/run/threads/rank_threads.h"

namespace penstock {
namespace {

using Seconds = std::chrono::duration<double>;

torch::nn::Sequential make_stage_layers(const StepBenchmarkOptions& options) {
  torch::nn::Sequential layers;
  for (int layer = 0; layer < options.layers; ++layer) {
    layers->push_back(torch::nn::Linear(options.hidden, options.hidden));
    layers->push_back(torch::nn::GELU());
  }
  return layers;
}

std::vector<torch::nn::Sequential> make_model(int num_stages, const StepBenchmarkOptions& options) {
  std::vector<torch::nn::Sequential> model;
  model.reserve(static_cast<std::size_t>(num_stages));
  for (int stage = 0; stage < num_stages; ++stage) model.push_back(make_stage_layers(options));
  return model;
}

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::mse_loss(output, target);
}

struct Data {
  at::Tensor inputs;
  at::Tensor targets;
  std::vector<at::Tensor> input_parts;
  std::vector<at::Tensor> target_parts;
};

Data make_data(const StepBenchmarkOptions& options) {
  const std::int64_t rows = std::int64_t{options.rows} * options.num_microbatches;
  Data data{.inputs = at::randn({rows, options.hidden}),
            .targets = at::randn({rows, options.hidden}),
            .input_parts = {},
            .target_parts = {}};
  data.input_parts = data.inputs.tensor_split(options.num_microbatches);
  data.target_parts = data.targets.tensor_split(options.num_microbatches);
  return data;
}

// Whether a model begins with the data, or goes on with what another one has made: only then are
// there gradients of its inputs to compute.
enum class Inputs { Data, Activations };

// A training step as one would write it without a pipeline.
void train_eagerly(std::vector<torch::nn::Sequential>& model, const Data& data, Inputs inputs,
                   std::size_t first_microbatch, std::size_t end_microbatch) {
  const double weight = 1.0 / static_cast<double>(data.input_parts.size());
  for (std::size_t microbatch = first_microbatch; microbatch < end_microbatch; ++microbatch) {
    at::Tensor hidden = data.input_parts[microbatch];
    if (inputs == Inputs::Activations) hidden = hidden.detach().requires_grad_();
    for (torch::nn::Sequential& stage : model) hidden = stage->forward(hidden);
    const at::Tensor loss = loss_of(hidden, data.target_parts[microbatch]);
    loss.backward(at::full({}, weight));
  }
}

// Half of the baseline's work for each of two threads: half of the stages, or half of the
// microbatches if the stages do not divide.
class TwoHalves {
 public:
  TwoHalves(int num_stages, const StepBenchmarkOptions& options, const Data& data)
      : data_(data),
        splits_stages_(num_stages % 2 == 0),
        threads_(2, {.wait = wait_policy_for(2, std::chrono::hours(1)),
                     .intra_op_threads = 1,
                     .pins_threads = options.pins_threads}) {
    for (auto& model : models_)
      model = make_model(splits_stages_ ? num_stages / 2 : num_stages, options);
  }

  void step() {
    threads_.run([this](int half) {
      const std::size_t count = data_.input_parts.size();
      const std::size_t first = splits_stages_ || half == 0 ? 0 : count / 2;
      const std::size_t end = splits_stages_ || half == 1 ? count : count / 2;
      train_eagerly(models_[static_cast<std::size_t>(half)], data_,
                    splits_stages_ && half == 1 ? Inputs::Activations : Inputs::Data, first, end);
    });
  }

 private:
  const Data& data_;
  bool splits_stages_;
  std::array<std::vector<torch::nn::Sequential>, 2> models_;
  RankThreads threads_;
};

// One thread with the settings that a rank has.
class OneThread {
 public:
  OneThread(int num_stages, const StepBenchmarkOptions& options, const Data& data)
      : data_(data),
        model_(make_model(num_stages, options)),
        threads_(1, {.wait = {}, .intra_op_threads = 1, .pins_threads = false}) {}

  void step() {
    threads_.run(
        [this](int) { train_eagerly(model_, data_, Inputs::Data, 0, data_.input_parts.size()); });
  }

 private:
  const Data& data_;
  std::vector<torch::nn::Sequential> model_;
  RankThreads threads_;
};

class Pipeline {
 public:
  Pipeline(const Schedule& order, const StepBenchmarkOptions& options, const Data& data,
           const std::shared_ptr<RankGroup>& group)
      : data_(data),
        timeline_(std::make_shared<TimelineRecorder>()),
        profile_(std::make_shared<ProfileRecorder>()) {
    const StageList stages = make_stages(order, options, group);
    ScheduleOptions schedule_options{.num_microbatches = options.num_microbatches,
                                     .group = group,
                                     .loss = loss_of,
                                     .weight_gradients = options.weight_gradients,
                                     .intra_op_threads = 1,
                                     .pins_threads = options.pins_threads,
                                     .deadline = options.deadline};
    bare_ = std::make_unique<PipelineSchedule>(stages, order, schedule_options);
    if (group != nullptr) return;  // whoever watches sees the ranks of this process alone
    schedule_options.observers = {timeline_, profile_};
    watched_ = std::make_unique<PipelineSchedule>(stages, order, schedule_options);
  }

  void step() { run(*bare_); }

  void watch(StepBenchmark& result) {
    if (watched_ == nullptr) return;
    for (int step = 0; step < 4; ++step) run(*watched_);
    result.profile = profile_->profile(watched_->stages());
    result.program = timeline_->program();
    result.timeline = timeline_->timeline(result.profile.costs);
    result.wall_time = timeline_->wall_time();
  }

 private:
  // Those of this process.
  static StageList make_stages(const Schedule& order, const StepBenchmarkOptions& options,
                               const std::shared_ptr<RankGroup>& group) {
    const int num_stages = extent_of(order).num_stages;
    const Placement placement = placement_of(order, num_stages);
    StageList stages;
    for (int index = 0; index < num_stages; ++index) {
      if (group != nullptr && placement.rank_of(index) != group->local_ranks().front()) continue;
      stages.push_back(
          std::make_shared<PipelineStage>(make_stage_module(make_stage_layers(options)),
                                          StagePosition{.index = index, .num_stages = num_stages}));
    }
    return stages;
  }

  void run(PipelineSchedule& schedule) const {
    schedule.step({data_.inputs}, {.target = data_.targets, .return_outputs = false});
  }

  const Data& data_;
  std::shared_ptr<TimelineRecorder> timeline_;
  std::shared_ptr<ProfileRecorder> profile_;
  std::unique_ptr<PipelineSchedule> bare_;
  std::unique_ptr<PipelineSchedule> watched_;
};

template <typename Step>
void time_steps(const Step& step, int count, std::vector<double>& seconds) {
  for (int index = 0; index < count; ++index) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    seconds.push_back(Seconds(std::chrono::steady_clock::now() - begin).count());
  }
}

StepTime summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {.median = seconds[seconds.size() / 2], .best = seconds.front()};
}

ScheduleShape shape_of(const StepBenchmarkOptions& options) {
  return resolve_shape(options.schedule, {.num_ranks = options.num_ranks,
                                          .num_microbatches = options.num_microbatches,
                                          .stages_per_rank = options.stages_per_rank});
}

void require_at_least_one(int count, std::string_view what) {
  if (count < 1) throw ArgumentError(fmt::format("{} must be at least 1, but is {}", what, count));
}

}  // namespace

StepBenchmarkOptions resolve(StepBenchmarkOptions options) {
  require_at_least_one(options.hidden, "hidden");
  require_at_least_one(options.rows, "rows");
  require_at_least_one(options.layers, "layers");
  require_at_least_one(options.num_steps, "steps");
  options.stages_per_rank = shape_of(options).stages_per_rank;
  const Schedule order = make_schedule(options.schedule, shape_of(options));
  const Schedule program = lower(order, {.sharding = false});
  if (have_same_compute_order(program, keep_forwards(program))) {
    throw ArgumentError(fmt::format("{} has no backwards to train with", options.schedule));
  }
  return options;
}

StepBenchmark run_step_benchmark(const StepBenchmarkOptions& options,
                                 const std::function<void(double)>& progress,
                                 const std::shared_ptr<RankGroup>& group) {
  StepBenchmark result;
  result.options = resolve(options);
  const Schedule order = make_schedule(options.schedule, shape_of(options));
  const int num_stages = extent_of(order).num_stages;
  const Schedule program = lower(order, {.sharding = false});
  result.num_actions = static_cast<int>(num_actions(program));
  result.ideal_bubble = simulate(program, CostModel::uniform()).makespan_bubble;

  use_one_blas_thread();
  const Data data = make_data(options);
  Pipeline pipeline(order, options, data, group);
  // The other processes have their part in the pipeline alone, and do not look at the clock.
  const bool measures = group == nullptr || group->local_ranks().front() == 0;
  std::optional<OneThread> baseline;
  std::optional<TwoHalves> two_cores;
  if (measures) {
    baseline.emplace(num_stages, options, data);
    two_cores.emplace(num_stages, options, data);
  }
  std::vector<double> pipeline_seconds;
  std::vector<double> baseline_seconds;
  std::vector<double> two_cores_seconds;

  // In blocks, because threads that were parked meanwhile take a step to wake up.
  constexpr int kWarmUpSteps = 3;
  constexpr int kBlocks = 10;
  const int steps_per_block = std::max(1, options.num_steps / kBlocks);
  const auto measure = [](auto& subject, int count, std::vector<double>& seconds) {
    subject.step();
    time_steps([&subject] { subject.step(); }, count, seconds);
  };
  for (int step = 0; step < kWarmUpSteps; ++step) {
    pipeline.step();
    if (!measures) continue;
    baseline->step();
    two_cores->step();
  }
  for (int done = 0; done < options.num_steps; done += steps_per_block) {
    const int count = std::min(steps_per_block, options.num_steps - done);
    measure(pipeline, count, pipeline_seconds);
    if (!measures) continue;
    measure(*baseline, count, baseline_seconds);
    measure(*two_cores, count, two_cores_seconds);
    if (progress) progress(static_cast<double>(done + count) / options.num_steps);
  }
  if (!measures) return result;
  result.step = summary(pipeline_seconds);
  result.baseline = summary(baseline_seconds);
  result.two_cores = summary(two_cores_seconds);
  pipeline.watch(result);
  return result;
}

}  // namespace penstock
