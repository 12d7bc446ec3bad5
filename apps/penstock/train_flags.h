#pragma once

#include <string>

#include "penstock/run/train/trainer.h"
#include "run_flags.h"

namespace penstock {

// The options of penstock train.
struct TrainFlags {
  RunFlags run;
  int steps = 400;
  std::string optimizer = "AdamW";
  double learning_rate = 5e-3;
  double least_learning_rate = 5e-4;
  std::string decay = "cosine";
  int warm_up = -1;  // not given
  std::string weight_decay;
  std::string momentum;
  std::string first_beta;
  std::string second_beta;
  std::string clip = "1";
  int checkpoint_every = 0;
  int keep = 3;
  bool resumes = false;
  std::string log_path;
  std::string report_path = "report.html";
  bool has_no_report = false;
  int sample = 240;
};

void add_train_options(CLI::App& command, TrainFlags& flags);

// How to train with them. Throws ArgumentError if they contradict each other.
TrainerOptions trainer_options(const TrainFlags& flags);

}  // namespace penstock
