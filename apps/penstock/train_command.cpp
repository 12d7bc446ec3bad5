#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "checkpoint_note.h"
#include "commands.h"
#include "forward_run.h"
#include "interruption.h"
#include "json_config.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/grouped.h"
#include "penstock/base/text.h"
#include "penstock/plan/report/html_report.h"
#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/manifest.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/train/run_figures.h"
#include "penstock/run/train/text_generation.h"
#include "prepare_process.h"
#include "program.h"
#include "run_flags.h"
#include "schedule_io.h"
#include "train_flags.h"
#include "train_log.h"
#include "train_output.h"
#include "writable_place.h"

namespace penstock {
namespace {

// How the stages are spread over the replicas.
std::string spread_text(const RunSetup& setup, const RunPipeline& pipeline) {
  const int num_stages = setup.plan.num_stages();
  if (pipeline.num_sharded_stages() == 0) return "each with all parameters";
  if (pipeline.num_sharded_stages() == num_stages) return "sharded";
  return fmt::format("{} of {} stages sharded; the others share parameters, or have none",
                     pipeline.num_sharded_stages(), num_stages);
}

std::string ranks_text(const RunFlags& flags) {
  if (!flags.uses_processes()) return "threads";
  return flags.transport == "auto" ? "processes" : "processes over " + flags.transport;
}

constexpr const char* kStream = "-";

// For the checkpoint of a run that was given no folder and is interrupted. What is there already is
// somebody else's.
std::string unused_folder() {
  constexpr const char* kName = "penstock-checkpoint";
  std::string name = kName;
  std::error_code ignored;  // what cannot be looked at cannot be written to: saving says so
  for (int number = 2; std::filesystem::exists(name, ignored); ++number) {
    name = fmt::format("{}-{}", kName, number);
  }
  return name;
}

void require_backwards(const PipelinePlan& plan) {
  const auto is_backward = [](const Action& action) {
    return action.kind == ActionKind::FullBackward || action.kind == ActionKind::InputBackward ||
           action.kind == ActionKind::Overlap;
  };
  for (const auto& rank : plan.schedule.ranks) {
    if (std::any_of(rank.begin(), rank.end(), is_backward)) return;
  }
  throw ArgumentError(
      fmt::format("the schedule {} has forwards alone, and nothing to train with; choose another "
                  "one of 'penstock list', or use 'penstock eval'",
                  quote(plan.name, 200)));
}

// Stops all processes of a run after the same step.
class StopSign {
 public:
  explicit StopSign(const RunProcesses& processes)
      : world_(processes.world), ranks_(processes.ranks) {}

  // Before step `number`, from 1: the first process says if it is the last one.
  void announce(std::int64_t number) {
    if (world_ == nullptr || world_->rank() != 0 || is_announced_ || interruption() == 0) return;
    world_->store().set(kKey, std::to_string(number));
    is_announced_ = true;
  }

  // After step `number`. Nobody finishes a step that the first process has not begun, so what it
  // has said about that step is known by now; it may be ahead already, and have said more.
  bool is_up(std::int64_t number) const {
    if (world_ == nullptr) return interruption() != 0;
    if (world_->rank() == 0) return is_announced_;
    const std::optional<std::string> last =
        world_->find(kKey, [this] { ranks_->require_healthy(); });
    return last && std::stoll(*last) <= number;
  }

 private:
  static constexpr const char* kKey = "train/last_step";
  World* world_;
  std::shared_ptr<const ProcessRanks> ranks_;
  bool is_announced_ = false;
};

class TrainCommand {
 public:
  // `flags` are bound to the options of `command`: a checkpoint changes them.
  TrainCommand(CLI::App& command, TrainFlags& flags) : command_(command), flags_(flags) {}

  Answer run();

 private:
  void choose_streams();
  void take_up_checkpoint();
  void require_same_optimizer() const;
  Answer run_on(RunRanks& ranks, const RunSetup& setup, const TrainerOptions& options);
  void introduce(const RunSetup& setup, const RunPipeline& pipeline) const;
  void train(RunPipeline& pipeline, Trainer& trainer, const RunSetup& setup);
  void finish(RunPipeline& pipeline, Trainer& trainer, const RunSetup& setup);
  std::string report_title(const RunFigures& figures, std::int64_t step) const;
  void tell_of_stop(const Trainer& trainer) const;
  // Throws FailedRun if some process could not say all that it had to.
  void require_heard(const std::string& complaint) const;
  // Where the losses arrive.
  static bool is_talking(const RunPipeline& pipeline) { return pipeline.has_last_stage(); }

  CLI::App& command_;
  TrainFlags& flags_;
  Talk talk_{stdout};
  std::optional<std::filesystem::path> resumed_;  // the checkpoint that the run goes on from
  bool is_stopped_ = false;
  double first_loss_ = 0;
  double last_loss_ = 0;
  double units_per_second_ = 0;
};

// What programs read has standard output for itself.
void TrainCommand::choose_streams() {
  const bool streams_log = flags_.log_path == kStream;
  const bool streams_report = !flags_.has_no_report && flags_.report_path == kStream;
  if (streams_log && streams_report) {
    throw ArgumentError("--log - and --report - cannot both have standard output; give one a file");
  }
  if (streams_log || streams_report) talk_ = Talk(stderr);
}

void TrainCommand::take_up_checkpoint() {
  const std::string& folder = flags_.run.checkpoint;
  if (folder.empty()) {
    if (flags_.resumes)
      throw ArgumentError("--resume needs --checkpoint, the folder to go on from");
    if (flags_.checkpoint_every > 0) {
      throw ArgumentError("--checkpoint-every needs --checkpoint, the folder to write to");
    }
    return;
  }
  require_writable_folder(folder, "choose another folder with --checkpoint");
  const std::optional<std::filesystem::path> latest = latest_checkpoint(folder);
  if (!latest) return;
  if (!flags_.resumes) {
    throw ArgumentError(fmt::format(
        "there are checkpoints in {} already; give --resume to go on, or another folder",
        quote(folder, 200)));
  }
  resumed_ = latest;
  apply_checkpoint(command_, *latest);
  require_same_optimizer();
}

void TrainCommand::require_same_optimizer() const {
  const std::string saved = manifest_of(*resumed_).optimizer;
  if (saved.empty() || same_name(saved, flags_.optimizer)) return;
  throw ArgumentError(
      fmt::format("{} has the state of {}, which {} cannot go on with; leave --optimizer out, or "
                  "start anew in another folder of --checkpoint",
                  resumed_->string(), saved, flags_.optimizer));
}

void TrainCommand::introduce(const RunSetup& setup, const RunPipeline& pipeline) const {
  const RunFlags& run = flags_.run;
  talk_.say("model {} with {} parameters on {}\n", quote(run.model, 200),
            grouped(setup.model.num_parameters), setup.data->description());
  talk_.say("{}: {}, {}, {} of {}, {}\n", setup.plan.name, counted(run.ranks, "rank", "ranks"),
            counted(setup.plan.num_stages(), "stage", "stages"),
            counted(run.microbatches, "microbatch", "microbatches"),
            counted(run.batch / run.microbatches, "sample", "samples"), ranks_text(run));
  if (run.replicas > 1) {
    talk_.say("{} replicas of the pipeline, {}\n", run.replicas, spread_text(setup, pipeline));
  }
  if (!setup.plan.remark.empty()) talk_.say("{}\n", setup.plan.remark);
  if (resumed_) {
    talk_.say("going on from {}\n", resumed_->string());
    if (!has_same_data(*resumed_, *setup.data)) {
      talk_.say(
          "the data has changed since then: the result will not be that of a run without "
          "a break\n");
    }
    if (const std::uint64_t seed = manifest_of(*resumed_).position.seed; seed != run.seed) {
      talk_.say("the seed was {}: with {}, batches and dropout differ from here on\n", seed,
                run.seed);
    }
  }
}

void TrainCommand::train(RunPipeline& pipeline, Trainer& trainer, const RunSetup& setup) {
  const double units_per_step =
      static_cast<double>(flags_.run.batch * setup.training->units_per_sample());
  const std::string note = checkpoint_note(command_, *setup.data);
  TrainProgress progress({.num_steps = flags_.steps,
                          .first_step = trainer.num_steps_done(),
                          .units_per_step = units_per_step,
                          .unit = setup.training->unit()},
                         talk_);
  std::optional<TrainLog> log;
  if (is_talking(pipeline) && !flags_.log_path.empty()) {
    log.emplace(flags_.log_path, resumed_ ? std::optional(trainer.num_steps_done()) : std::nullopt,
                setup.training->unit());
  }
  StopSign stop(pipeline.processes());
  bool is_first = true;
  while (trainer.num_steps_done() < flags_.steps && !is_stopped_) {
    stop.announce(trainer.num_steps_done() + 1);
    const StepFigures figures = trainer.step();
    if (std::exchange(is_first, false)) first_loss_ = figures.loss;
    last_loss_ = figures.loss;
    if (is_talking(pipeline)) progress.show(figures);
    if (log) log->write(figures, units_per_step);
    is_stopped_ = stop.is_up(figures.step);
    if (is_stopped_ && flags_.run.checkpoint.empty()) {
      flags_.run.checkpoint = decide_for_all(pipeline.processes(), "stop", unused_folder);
    }
    const bool is_last = is_stopped_ || figures.step == flags_.steps;
    const bool is_due = flags_.checkpoint_every > 0 && figures.step % flags_.checkpoint_every == 0;
    if (!flags_.run.checkpoint.empty() && (is_last || is_due)) {
      trainer.save(flags_.run.checkpoint, flags_.keep, note);
    }
  }
  units_per_second_ = progress.units_per_second();
  if (is_talking(pipeline)) progress.end();
}

std::string TrainCommand::report_title(const RunFigures& figures, std::int64_t step) const {
  return fmt::format("Training {}: {}, {}, {}, step {}", flags_.run.model, figures.schedule,
                     counted(figures.program.num_ranks(), "rank", "ranks"),
                     counted(flags_.run.microbatches, "microbatch", "microbatches"), step);
}

void TrainCommand::finish(RunPipeline& pipeline, Trainer& trainer, const RunSetup& setup) {
  const RunFigures figures = gather_figures(pipeline, trainer.optimizer());
  pipeline.train(false);
  std::string sample;
  const std::optional<TokenShape> shape = token_shape_of(*setup.data);
  if (flags_.sample > 0 && shape && shape->vocabulary == kNumByteTokens) {
    sample = generate_text(
        pipeline, "The ",
        {.context = shape->context, .num_tokens = flags_.sample, .seed = flags_.run.seed});
  }
  if (!is_talking(pipeline)) return;
  talk_.say("loss {} at first, {} at last\n\n", loss_text(first_loss_), loss_text(last_loss_));
  talk_.say_text(figures_table(figures, units_per_second_, setup.training->unit()));
  if (!sample.empty()) {
    talk_.say("\na sample of what it writes:\n{}", quoted_text(printable_text(sample)));
  }
  if (!flags_.has_no_report) {
    write_output(write_html_report(report_entries(figures),
                                   {.title = report_title(figures, trainer.num_steps_done())}),
                 flags_.report_path);
    if (flags_.report_path != kStream) {
      talk_.say("\n{} has the last step, measured and predicted\n", flags_.report_path);
    }
  }
  if (!flags_.run.checkpoint.empty()) {
    talk_.say("{} has the checkpoint\n",
              checkpoint_path(flags_.run.checkpoint, trainer.num_steps_done()).string());
  }
}

Answer TrainCommand::run() {
  prepare_process();
  if (!flags_.run.config.empty()) apply_config_file(command_, flags_.run.config);
  find_launched(flags_.run);
  if (!flags_.run.is_first_process()) catch_interruptions(Interrupted::Ignores);
  choose_streams();
  if (!flags_.has_no_report) {
    require_writable_file(flags_.report_path, "choose a place with --report, or give --no-report");
  }
  if (!flags_.log_path.empty()) require_log_place(flags_.log_path);
  const bool has_least_rate = command_.get_option("--min-lr")->count() > 0;
  take_up_checkpoint();
  if (has_least_rate && flags_.least_learning_rate > flags_.learning_rate) {
    throw ArgumentError(fmt::format(
        "--min-lr {:g} is above --lr {:g}; the learning rate falls from --lr to --min-lr",
        flags_.least_learning_rate, flags_.learning_rate));
  }
  const TrainerOptions options = trainer_options(flags_);
  RunSetup setup = prepare_run(command_, flags_.run,
                               [this](const std::string& line) { talk_.say("{}\n", line); });
  if (flags_.run.is_first_process()) require_backwards(setup.plan);
  RunRanks ranks(flags_.run, setup);
  try {
    return run_on(ranks, setup, options);
  } catch (const std::exception& error) {
    ranks.tell_failure(error);
    throw;
  }
}

Answer TrainCommand::run_on(RunRanks& ranks, const RunSetup& setup, const TrainerOptions& options) {
  RunPipeline pipeline(setup.model, setup.plan,
                       {.loss = setup.loss,
                        .processes = ranks.processes(),
                        .num_replicas = flags_.run.replicas,
                        .is_sharded = flags_.run.is_sharded,
                        .deadline = flags_.run.deadline()});
  Trainer trainer(pipeline, *setup.training, options);
  if (resumed_) trainer.resume(*resumed_);
  if (flags_.run.is_first_process()) introduce(setup, pipeline);
  if (trainer.num_steps_done() >= flags_.steps) {
    if (flags_.run.is_first_process()) {
      talk_.say("all {} are done already; give --steps for more\n",
                counted(flags_.steps, "step", "steps"));
    }
    require_heard("");
    return Answer::Yes;
  }
  if (flags_.run.is_first_process()) catch_interruptions(Interrupted::TakesNote);
  std::string complaint;
  try {
    train(pipeline, trainer, setup);
    if (!is_stopped_) finish(pipeline, trainer, setup);
    complaint = ranks.wait_for_all(talk_.complaint());
  } catch (const std::exception& error) {
    throw FailedRun(cause_of(error));
  }
  if (is_stopped_ && flags_.run.is_first_process()) tell_of_stop(trainer);
  // Nobody is there to hear more.
  if (is_stopped_ && interruption() == SIGHUP) return Answer::HungUp;
  require_heard(flags_.run.is_first_process() ? complaint : "");
  if (!is_stopped_) return Answer::Yes;
  return interruption() == SIGTERM ? Answer::Terminated : Answer::Interrupted;
}

void TrainCommand::require_heard(const std::string& complaint) const {
  const std::string found = complaint.empty() ? talk_.complaint() : complaint;
  if (!found.empty()) throw FailedRun(found);
}

void TrainCommand::tell_of_stop(const Trainer& trainer) const {
  const std::string& folder = flags_.run.checkpoint;
  talk_.say(
      "stopped after step {} of {}; {} has the checkpoint, and 'penstock train --resume "
      "--checkpoint "
      "{}' goes on from there\n",
      trainer.num_steps_done(), flags_.steps,
      checkpoint_path(folder, trainer.num_steps_done()).string(), folder);
}

}  // namespace

void add_train_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = program.add_subcommand("train", "Train a model in a pipeline");
  command->footer(
      "Examples:\n"
      "  penstock train --steps 10\n"
      "  penstock train --schedule zbv --layers 2 --width 32 --steps 4 --checkpoint run --log "
      "run.jsonl\n"
      "  penstock train --model mlp --schedule search --ranks 3 --transport shm --steps 4\n"
      "  penstock train --model mlp --data-parallel 2 --sharded --steps 4\n"
      "\n"
      "Without options, it trains a small GPT on the text that comes with Penstock, in about a "
      "minute\n"
      "on two cores, and shows how well the pipeline did and what the model writes.\n"
      "\n"
      "The loss after N steps depends on the model, the data, the batch, the number of "
      "microbatches, the\n"
      "optimizer and the seed: not on the schedule, the ranks or how they reach each other, to the "
      "last\n"
      "bit. Replicas with several microbatches each add gradients in another order.\n"
      "Ctrl-C finishes the step, writes a checkpoint, into the folder penstock-checkpoint if none "
      "is "
      "given,\n"
      "and ends with status 130; --resume goes on as if nothing had happened, under any schedule "
      "and with any replicas.\n"
      "docs/guide/training.md has more.");
  add_train_options(*command, *flags);
  command->callback([flags, command, &answer] {
    answer = run_as_rank(flags->run, [&] { return TrainCommand(*command, *flags).run(); });
  });
}

}  // namespace penstock
