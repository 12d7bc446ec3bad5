#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "forward_run.h"
#include "option_values.h"
#include "penstock/base/text.h"
#include "penstock/run/train/trainer.h"
#include "run_flags.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct EvalFlags {
  RunFlags run;
  int batches = 0;
  bool as_json = false;
};

std::string as_text(const Evaluation& evaluation, const Dataset& data, double seconds) {
  const auto units = static_cast<double>(evaluation.num_samples * data.units_per_sample());
  return fmt::format("loss {:.6g} on {:.0f} held-out {}, {:.0f} {}/s\n", evaluation.loss, units,
                     data.unit(), units / seconds, data.unit());
}

std::string as_json(const Evaluation& evaluation, const Dataset& data, double seconds) {
  const std::int64_t units = evaluation.num_samples * data.units_per_sample();
  nlohmann::ordered_json json;
  json["loss"] = evaluation.loss;
  json[data.unit()] = units;
  json[data.unit() + "_per_s"] = static_cast<double>(units) / seconds;
  return json.dump() + "\n";
}

Answer run_eval(CLI::App& command, EvalFlags& flags) {
  ForwardRun run(command, flags.run, flags.run.microbatches);
  const auto begin = std::chrono::steady_clock::now();
  const Evaluation evaluation =
      evaluate(run.pipeline().schedule(), *run.setup().held_out, flags.run.batch,
               flags.batches > 0 ? flags.batches : std::numeric_limits<std::int64_t>::max());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (run.pipeline().has_last_stage()) {
    const Dataset& data = *run.setup().held_out;
    write_output(
        flags.as_json ? as_json(evaluation, data, seconds) : as_text(evaluation, data, seconds),
        "-");
  }
  run.end();
  return Answer::Yes;
}

}  // namespace

void add_eval_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      program.add_subcommand("eval", "Tell the loss of a trained model on held-out data");
  command->footer(
      "Examples:\n"
      "  penstock eval --layers 1 --width 32 --batches 2\n"
      "  penstock eval --model resnet --schedule zbv --json\n"
      "\n"
      "With --checkpoint, the model, its data and its sizes are those that 'penstock train' has "
      "saved\n"
      "there, from any pipeline; what the command line says wins. Without it, a new model is\n"
      "evaluated. Only the forwards of the schedule run.");
  add_run_options(*command, flags->run);
  command->get_option("--checkpoint")
      ->description("folder of checkpoints; the latest is evaluated");
  expect_count(command->add_option("--batches", flags->batches,
                                   "default: all full batches of the held-out data"))
      ->type_name("N")
      ->group("Data");
  command->add_flag("--json", flags->as_json, "print one line of JSON")->group("Output");
  command->callback([flags, command, &answer] {
    answer = run_as_rank(flags->run, [&] { return run_eval(*command, *flags); });
  });
}

}  // namespace penstock
