#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/train/dataset.h"
#include "penstock/run/train/run_pipeline.h"
#include "penstock/run/training/gradient_norm.h"

namespace penstock {

struct TrainerOptions {
  int batch = 32;  // samples of a step, over all replicas
  std::uint64_t seed = 0;
  std::string optimizer = "AdamW";
  OptimizerOptions optimizer_options = {};
  LearningRateSchedule learning_rate = {};
  std::optional<double> clip = std::nullopt;  // the largest norm of the gradients
};

// One step of a run as it is logged.
struct StepFigures {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // the mean over the batch; where the last stage is, else 0
  double learning_rate = 0;
  double gradient_norm = 0;  // before it was clipped
  double bubble = 0;         // of the ranks of this process, in its first replica
  double seconds = 0;        // the whole step, with data and optimizer
};

// Trains a model step by step, in one pipeline or in several that each take a part of the batch.
// Step n draws its batch and its random numbers from the seed and n alone, so that a run that was
// interrupted goes on as if it had not been. In a run of several processes, all of them make the
// same calls.
class Trainer {
 public:
  // `pipeline` and `data` must outlive the trainer. Throws ArgumentError if the batch cannot be
  // divided among the replicas.
  Trainer(RunPipeline& pipeline, const Dataset& data, const TrainerOptions& options);

  // Steps that are done.
  std::int64_t num_steps_done() const { return num_steps_done_; }

  // The optimizer's step is left out if a gradient is not finite. Throws Error if that happens
  // again and again, and what PipelineSchedule::step() throws.
  StepFigures step();

  // Writes the checkpoint of this moment into `folder`, and returns its path. `note` is a JSON text
  // that the manifest keeps as the position in the data.
  std::filesystem::path save(const std::filesystem::path& folder, int keep,
                             const std::string& note);

  // Takes up the state in the checkpoint at `path`. Throws CheckpointError if it is damaged or of
  // another model.
  void resume(const std::filesystem::path& path);

  // Of the first replica of this process. Each has its own, and all do the same.
  const torch::optim::Optimizer& optimizer() const { return *optimizers_.front(); }

 private:
  // One replica's part of a step.
  struct Part {
    double loss = 0;  // the mean over all replicas
    GradientNorm norm;
  };
  Part step_replica(int replica, const std::vector<std::int64_t>& samples, double rate);
  void count_left_out(const GradientNorm& norm);

  RunPipeline& pipeline_;
  const Dataset& data_;
  TrainerOptions options_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;  // by local replica
  std::int64_t num_steps_done_ = 0;
  int num_left_out_ = 0;  // steps of the optimizer, in a row
};

struct Evaluation {
  double loss = 0;  // the mean over all samples; where the last stage is, else 0
  std::int64_t num_samples = 0;
};

// The loss on samples that cover `data` once, in full batches of `batch`, of which it takes the
// first `max_batches` at most. Throws ArgumentError if there is not one full batch.
Evaluation evaluate(PipelineSchedule& schedule, const Dataset& data, int batch,
                    std::int64_t max_batches);

}  // namespace penstock
