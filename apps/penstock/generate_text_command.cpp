#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint_note.h"
#include "commands.h"
#include "forward_run.h"
#include "json_config.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/run/train/text_generation.h"
#include "prepare_process.h"
#include "run_flags.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct GenerateFlags {
  RunFlags run;
  std::string prompt = "The ";
  int tokens = 400;
  double temperature = 0.8;
};

Answer run_generate(CLI::App& command, GenerateFlags& flags) {
  prepare_process();
  if (!flags.run.config.empty()) {
    apply_config_file(command, std::exchange(flags.run.config, ""));
  }
  if (!flags.run.checkpoint.empty()) {
    flags.run.tokens = tokens_of_checkpoint(checkpoint_to_use(flags.run));
  }
  ForwardRun run(command, flags.run, 1);
  const std::optional<TokenShape> shape = token_shape_of(*run.setup().data);
  if (!shape || shape->vocabulary != kNumByteTokens) {
    throw ArgumentError(fmt::format("text is written byte by byte, but the model is one of {}",
                                    shape ? fmt::format("{} kinds of tokens", shape->vocabulary)
                                          : run.setup().data->description()));
  }
  const std::string text = generate_text(run.pipeline(), flags.prompt,
                                         {.context = shape->context,
                                          .num_tokens = flags.tokens,
                                          .temperature = flags.temperature,
                                          .seed = flags.run.seed});
  if (run.pipeline().has_last_stage()) write_output(printable_text(text) + "\n", "-");
  run.end();
  return Answer::Yes;
}

}  // namespace

void add_generate_text_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = program.add_subcommand("generate-text", "Let a trained model write text");
  command->footer(
      "Examples:\n"
      "  penstock generate-text --layers 1 --width 32 --tokens 20\n"
      "\n"
      "With --checkpoint, the model is the one that 'penstock train' has saved there, and its data "
      "is not\n"
      "needed; without it, the model is new and writes noise. The same seed writes the same text, "
      "whatever\n"
      "the schedule. Bytes that no terminal can show are printed as question marks.");
  add_run_options(*command, flags->run);
  command->get_option("--checkpoint")->description("folder of checkpoints; the latest writes");
  const std::string text = "Text";
  command->add_option("--prompt", flags->prompt, "what the text begins with")
      ->type_name("TEXT")
      ->capture_default_str()
      ->group(text);
  expect_count(command->add_option("--tokens", flags->tokens, "bytes to add"))
      ->type_name("N")
      ->capture_default_str()
      ->group(text);
  expect_numbers(command->add_option("--temperature", flags->temperature,
                                     "0: always the likeliest byte; above 1: the wilder"),
                 "0.8")
      ->type_name("X")
      ->capture_default_str()
      ->group(text);
  command->callback([flags, command, &answer] {
    answer = run_as_rank(flags->run, [&] { return run_generate(*command, *flags); });
  });
}

}  // namespace penstock
