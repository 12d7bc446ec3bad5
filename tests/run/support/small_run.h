#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/run/train/trainer.h"

namespace penstock {

constexpr int kSmallBatch = 8;
constexpr std::uint64_t kSmallSeed = 3;

// Tokens that can be learned.
std::shared_ptr<const Dataset> pattern_data();
// With dropout, and an embedding that is the head's weight, too.
ModelOptions small_gpt();
// AdamW, with gradients that are clipped.
TrainerOptions small_trainer();

// A training run that takes no time.
struct SmallRunOptions {
  std::string schedule = "1F1B";
  int num_ranks = 1;
  int num_microbatches = 4;  // of all replicas
  int num_replicas = 1;
  bool is_sharded = false;
  ModelOptions model = small_gpt();
  std::shared_ptr<const Dataset> data = pattern_data();
  RunProcesses processes = {};  // of a mesh of these ranks and replicas
};

// From its beginning, with everything that it needs.
struct SmallRun {
  explicit SmallRun(const SmallRunOptions& options);

  std::vector<double> losses_of(int num_steps) const;

  std::shared_ptr<const Dataset> data;
  LossFunction loss;
  RunModel model;
  std::unique_ptr<RunPipeline> pipeline;
  std::unique_ptr<Trainer> trainer;
};

}  // namespace penstock
