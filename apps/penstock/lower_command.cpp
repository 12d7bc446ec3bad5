#include <memory>
#include <string>

#include <fmt/format.h>

#include "commands.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct LowerCommandOptions {
  std::string path;
  LowerFlags lowering;
  OutputOptions output;
};

}  // namespace

void add_lower_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<LowerCommandOptions>();
  CLI::App* command =
      program.add_subcommand("lower", "Add sends, receives and parameter actions to a schedule");
  command->footer(
      "Example:\n"
      "  penstock generate 1f1b --ranks 4 --microbatches 8 | penstock lower - --format table\n"
      "\n"
      "Reads a compute order (CSV or JSON), proves it, and prints the program that ranks run.\n"
      "Exit status 1 means that the order is invalid; 'penstock check' lists everything wrong.");
  command->add_option("file", options->path, "compute order, or - for standard input")
      ->required()
      ->type_name("FILE");
  add_lower_options(*command, options->lowering);
  add_output_options(*command, options->output);
  command->callback([options, &answer] {
    const Schedule order = read_schedule(options->path);
    write_schedule(lower(order, options->lowering.resolve()), options->output);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
