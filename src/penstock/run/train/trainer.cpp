#include "penstock/run/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/random/random_scope.h"
#include "penstock/run/training/gradient_norm.h"

namespace penstock {
namespace {

double mean_of(const std::vector<double>& losses) {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return losses.empty() ? 0 : sum / static_cast<double>(losses.size());
}

std::vector<double> numbers_in(const std::vector<at::Tensor>& losses) {
  std::vector<double> numbers;
  numbers.reserve(losses.size());
  for (const at::Tensor& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

// Over the microbatches of all replicas, added in their order: as one pipeline that has them all
// would.
double mean_over_replicas(PipelineSchedule& schedule, const std::vector<at::Tensor>& losses) {
  if (losses.empty()) return 0;  // the replicas of this rank have none either
  std::vector<double> all;
  for (const at::Tensor& told :
       schedule.exchange_with_replicas(at::tensor(numbers_in(losses), at::kDouble))) {
    const auto* numbers = told.data_ptr<double>();
    all.insert(all.end(), numbers, numbers + told.numel());
  }
  return mean_of(all);
}

std::vector<std::int64_t> part_of(const std::vector<std::int64_t>& samples,
                                  const ReplicaPosition& replica) {
  const auto size = static_cast<std::ptrdiff_t>(samples.size()) / replica.count;
  const auto begin = samples.begin() + replica.index * size;
  return {begin, begin + size};
}

CheckpointGroup saving_group(const RunProcesses& processes) {
  if (processes.world == nullptr) return {};
  return checkpoint_group(*processes.world, processes.world->everyone(),
                          {.timeout = kSavePatience, .look = [processes] {
                             processes.ranks->require_healthy();
                             if (processes.replicas != nullptr) {
                               processes.replicas->require_healthy();
                             }
                           }});
}

}  // namespace

Trainer::Trainer(RunPipeline& pipeline, const Dataset& data, const TrainerOptions& options)
    : pipeline_(pipeline), data_(data), options_(options) {
  const int num_replicas = pipeline.position().count;
  if (options.batch % num_replicas != 0) {
    throw ArgumentError(fmt::format(
        "a batch of {} samples cannot be divided among {} replicas; use a multiple of {}",
        options.batch, num_replicas, num_replicas));
  }
  for (int replica = 0; replica < pipeline.num_local_replicas(); ++replica) {
    optimizers_.push_back(make_optimizer(options.optimizer, pipeline.schedule(replica).parameters(),
                                         options.optimizer_options));
  }
  learning_rate(options_.learning_rate, 0);  // complains before anything is trained
}

StepFigures Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  StepFigures figures{.step = num_steps_done_ + 1,
                      .learning_rate = learning_rate(options_.learning_rate, num_steps_done_)};
  const std::vector<std::int64_t> samples =
      draw_samples({.seed = options_.seed, .step = num_steps_done_, .batch = options_.batch},
                   data_.num_samples());
  Part first;
  pipeline_.run([&](int replica) {
    const Part part = step_replica(replica, samples, figures.learning_rate);
    if (replica == 0) first = part;
  });
  count_left_out(first.norm);
  ++num_steps_done_;
  figures.gradient_norm = first.norm.norm;
  figures.loss = first.loss;
  figures.bubble = pipeline_.meter().bubble();
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return figures;
}

Trainer::Part Trainer::step_replica(int replica, const std::vector<std::int64_t>& samples,
                                    double rate) {
  PipelineSchedule& schedule = pipeline_.schedule(replica);
  torch::optim::Optimizer& optimizer = *optimizers_[static_cast<std::size_t>(replica)];
  const Batch batch = data_.take(part_of(samples, pipeline_.position(replica)));
  optimizer.zero_grad();
  const StepResult result = schedule.step(
      {batch.inputs}, {.target = batch.targets,
                       .return_outputs = false,
                       .seed = step_seed(static_cast<std::uint64_t>(num_steps_done_))});
  const Part part{.loss = mean_over_replicas(schedule, result.losses),
                  .norm = clip_grad_norm(schedule, options_.clip.value_or(kNoLimit))};
  set_learning_rate(optimizer, rate);
  if (part.norm.is_finite()) optimizer.step();
  return part;
}

void Trainer::count_left_out(const GradientNorm& norm) {
  constexpr int kMostInARow = 20;
  if (norm.is_finite()) {
    num_left_out_ = 0;
  } else if (++num_left_out_ == kMostInARow) {
    throw Error(fmt::format(
        "step {}: the gradients are not finite, for the {}th time in a row, and training does not "
        "go on like this; try a smaller learning rate",
        num_steps_done_ + 1, kMostInARow));
  }
}

std::filesystem::path Trainer::save(const std::filesystem::path& folder, int keep,
                                    const std::string& note) {
  std::vector<std::vector<GatheredState>> by_replica(optimizers_.size());
  pipeline_.run([&](int replica) {
    const auto index = static_cast<std::size_t>(replica);
    const bool is_first = pipeline_.position(replica).index == 0;
    for (const RankState& state :
         rank_states(pipeline_.stages(replica), optimizers_[index].get(),
                     is_first ? StageTensors::All : StageTensors::Parameters)) {
      by_replica[index].push_back(gather(state));
    }
  });
  std::vector<GatheredState> states;
  for (auto& list : by_replica) std::move(list.begin(), list.end(), std::back_inserter(states));
  return save_checkpoint(folder, states,
                         {.step = num_steps_done_, .seed = options_.seed, .data = note},
                         {.keep = keep, .group = saving_group(pipeline_.processes())});
}

void Trainer::resume(const std::filesystem::path& path) {
  const bool has_all_stages = pipeline_.world() == nullptr;
  for (std::size_t index = 0; index < optimizers_.size(); ++index) {
    const StageList& stages = pipeline_.stages(static_cast<int>(index));
    num_steps_done_ = load_checkpoint(path, {rank_state(stages, optimizers_[index].get())},
                                      {.needs_all = has_all_stages})
                          .step;
  }
}

Evaluation evaluate(PipelineSchedule& schedule, const Dataset& data, int batch,
                    std::int64_t max_batches) {
  const std::int64_t available = (data.num_samples() + data.stride() - 1) / data.stride();
  const std::int64_t num_batches = std::min(available / batch, max_batches);
  if (num_batches < 1) {
    throw ArgumentError(
        fmt::format("there are {} to evaluate with, but a batch has {}; use a smaller "
                    "batch or more data",
                    counted(available, "sample", "samples"), batch));
  }
  double sum = 0;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch));
  for (std::int64_t number = 0; number < num_batches; ++number) {
    for (std::size_t row = 0; row < samples.size(); ++row) {
      samples[row] = (number * batch + static_cast<std::int64_t>(row)) * data.stride();
    }
    const Batch rows = data.take(samples);
    sum += mean_of(numbers_in(
        schedule.eval({rows.inputs}, {.target = rows.targets, .return_outputs = false}).losses));
  }
  return {.loss = sum / static_cast<double>(num_batches), .num_samples = num_batches * batch};
}

}  // namespace penstock
