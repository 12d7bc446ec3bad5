#include "penstock/run/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/random/random_scope.h"
#include "penstock/run/training/gradient_norm.h"

namespace penstock {
namespace {

double mean_of(const std::vector<at::Tensor>& losses) {
  double sum = 0;
  for (const at::Tensor& loss : losses) sum += loss.item<double>();
  return losses.empty() ? 0 : sum / static_cast<double>(losses.size());
}

}  // namespace

Trainer::Trainer(RunPipeline& pipeline, const Dataset& data, const TrainerOptions& options)
    : pipeline_(pipeline),
      data_(data),
      options_(options),
      optimizer_(make_optimizer(options.optimizer, pipeline.schedule().parameters(),
                                options.optimizer_options)) {
  learning_rate(options_.learning_rate, 0);  // complains before anything is trained
}

StepFigures Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  StepFigures figures{.step = num_steps_done_ + 1,
                      .learning_rate = learning_rate(options_.learning_rate, num_steps_done_)};
  const Batch batch = data_.take(
      draw_samples({.seed = options_.seed, .step = num_steps_done_, .batch = options_.batch},
                   data_.num_samples()));
  optimizer_->zero_grad();
  const StepResult result = pipeline_.schedule().step(
      {batch.inputs}, {.target = batch.targets,
                       .return_outputs = false,
                       .seed = step_seed(static_cast<std::uint64_t>(num_steps_done_))});
  const GradientNorm norm = clip_grad_norm(pipeline_.schedule(), options_.clip.value_or(kNoLimit));
  set_learning_rate(*optimizer_, figures.learning_rate);
  take_step(norm);
  ++num_steps_done_;
  figures.gradient_norm = norm.norm;
  figures.loss = mean_of(result.losses);
  figures.bubble = pipeline_.meter().bubble();
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return figures;
}

void Trainer::take_step(const GradientNorm& norm) {
  constexpr int kMostInARow = 20;
  if (norm.is_finite()) {
    optimizer_->step();
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
  SaveOptions options{.keep = keep};
  World* const world = pipeline_.world();
  if (world != nullptr) {
    options.group = checkpoint_group(*world, world->everyone(), pipeline_.processes());
  }
  return save_checkpoint(folder, rank_states(pipeline_.stages(), optimizer_.get()),
                         {.step = num_steps_done_, .seed = options_.seed, .data = note}, options);
}

void Trainer::resume(const std::filesystem::path& path) {
  const bool has_all_stages = pipeline_.world() == nullptr;
  num_steps_done_ = load_checkpoint(path, {rank_state(pipeline_.stages(), optimizer_.get())},
                                    {.needs_all = has_all_stages})
                        .step;
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
    sum += mean_of(
        schedule.eval({rows.inputs}, {.target = rows.targets, .return_outputs = false}).losses);
  }
  return {.loss = sum / static_cast<double>(num_batches), .num_samples = num_batches * batch};
}

}  // namespace penstock
