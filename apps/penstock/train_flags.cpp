#include "train_flags.h"

#include <algorithm>
#include <optional>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/optimizer/make_optimizer.h"

namespace penstock {
namespace {

// Steps in which the learning rate rises.
int warm_up_of(const TrainFlags& flags) {
  constexpr int kUsual = 20;
  constexpr int kShare = 10;
  if (flags.warm_up < 0) return std::min(kUsual, flags.steps / kShare);
  if (flags.warm_up < flags.steps) return flags.warm_up;
  throw ArgumentError(fmt::format("--warmup {} leaves nothing of {} to train with; use fewer",
                                  flags.warm_up, counted(flags.steps, "step", "steps")));
}

// Nothing, if it was not given.
std::optional<double> given_number(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_numbers(text, 1).front();
}

}  // namespace

TrainerOptions trainer_options(const TrainFlags& flags) {
  TrainerOptions options;
  options.batch = flags.run.batch;
  options.seed = flags.run.seed;
  options.optimizer = flags.optimizer;
  options.optimizer_options.learning_rate = flags.learning_rate;
  options.optimizer_options.weight_decay = given_number(flags.weight_decay);
  options.optimizer_options.momentum = given_number(flags.momentum);
  options.optimizer_options.first_beta = given_number(flags.first_beta);
  options.optimizer_options.second_beta = given_number(flags.second_beta);
  options.learning_rate = {.peak = flags.learning_rate,
                           .minimum = std::min(flags.least_learning_rate, flags.learning_rate),
                           .decay = parse_decay(flags.decay),
                           .num_warm_up_steps = warm_up_of(flags),
                           .num_steps = flags.steps};
  if (!flags.clip.empty() && flags.clip != "0") {
    options.clip = parse_numbers(flags.clip, 1).front();
  }
  // Refused here, before there are ranks that would all refuse it.
  make_optimizer(options.optimizer, {at::empty({0})}, options.optimizer_options);
  return options;
}

void add_train_options(CLI::App& command, TrainFlags& flags) {
  add_run_options(command, flags.run);
  command.get_option("--checkpoint")
      ->description("folder to write checkpoints to, at the end and when interrupted");
  command.get_option("--microbatches")->description("microbatches of a step, over all replicas");

  const std::string pipeline = "Pipeline";
  expect_count(command.add_option("--data-parallel", flags.run.replicas,
                                  "replicas of the pipeline, each with ranks of its own; they "
                                  "divide the microbatches among themselves"),
               {.smallest = 1, .largest = 1024})
      ->type_name("D")
      ->capture_default_str()
      ->group(pipeline);
  command
      .add_flag("--sharded", flags.run.is_sharded,
                "spread parameters, gradients and optimizer over the replicas; stages that share "
                "parameters with others stay whole")
      ->group(pipeline);

  const std::string training = "Training";
  expect_count(command.add_option("--steps", flags.steps, "steps of the whole run"))
      ->type_name("N")
      ->capture_default_str()
      ->group(training);
  command.add_option("--optimizer", flags.optimizer, "SGD, Adam, AdamW, RMSprop or Adagrad")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(training);
  expect_numbers(command.add_option("--lr", flags.learning_rate, "learning rate at its peak"),
                 "0.003")
      ->type_name("X")
      ->capture_default_str()
      ->group(training);
  expect_numbers(command.add_option("--min-lr", flags.least_learning_rate,
                                    "learning rate at the end, unless it is constant"),
                 "0.0003")
      ->type_name("X")
      ->capture_default_str()
      ->group(training);
  expect_choice(command.add_option("--lr-schedule", flags.decay,
                                   "how the learning rate falls: constant, linear or cosine"),
                {"constant", "linear", "cosine"})
      ->type_name("NAME")
      ->capture_default_str()
      ->group(training);
  expect_count(command.add_option("--warmup", flags.warm_up,
                                  "steps in which the learning rate rises to its peak; default: "
                                  "20, or a tenth of a short run"),
               {.smallest = 0})
      ->type_name("N")
      ->group(training);
  expect_numbers(
      command.add_option("--weight-decay", flags.weight_decay, "default: as the optimizer has it"),
      "0.01")
      ->type_name("X")
      ->group(training);
  expect_numbers(command.add_option("--momentum", flags.momentum,
                                    "of SGD and RMSprop; default: as the optimizer has it"),
                 "0.9")
      ->type_name("X")
      ->group(training);
  expect_numbers(command.add_option("--beta1", flags.first_beta,
                                    "of Adam and AdamW; default: as the optimizer has it"),
                 "0.9")
      ->type_name("X")
      ->group(training);
  expect_numbers(command.add_option("--beta2", flags.second_beta,
                                    "of Adam and AdamW; default: as the optimizer has it"),
                 "0.999")
      ->type_name("X")
      ->group(training);
  expect_numbers(command.add_option("--clip", flags.clip,
                                    "largest norm of the gradients over all stages; 0: no limit"),
                 "1")
      ->type_name("X")
      ->capture_default_str()
      ->group(training);

  const std::string checkpoints = "Checkpoints";
  expect_count(command.add_option("--checkpoint-every", flags.checkpoint_every,
                                  "steps between checkpoints; default: at the end alone"))
      ->type_name("N")
      ->group(checkpoints);
  expect_count(command.add_option("--keep", flags.keep, "checkpoints to keep; 0: all"),
               {.smallest = 0})
      ->type_name("N")
      ->capture_default_str()
      ->group(checkpoints);
  command
      .add_flag("--resume", flags.resumes,
                "go on from the latest checkpoint in the folder, if there is one; options that are "
                "not given are as they were")
      ->group(checkpoints);

  const std::string output = "Output";
  command.add_option("--log", flags.log_path, "write a line of JSON per step to this file")
      ->type_name("FILE")
      ->group(output);
  command
      .add_option("--report", flags.report_path, "page with the last step, measured and predicted")
      ->type_name("FILE")
      ->capture_default_str()
      ->group(output);
  command.add_flag("--no-report", flags.has_no_report, "write no such page")->group(output);
  expect_count(command.add_option("--sample", flags.sample,
                                  "bytes that a gpt of bytes writes at the end; 0: none"),
               {.smallest = 0})
      ->type_name("N")
      ->capture_default_str()
      ->group(output);
}

}  // namespace penstock
