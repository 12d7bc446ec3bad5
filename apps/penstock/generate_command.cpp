#include <memory>
#include <string>

#include "commands.h"
#include "option_values.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct GenerateOptions {
  std::string name;
  ScheduleShape shape;
  bool lower = false;
  LowerFlags lowering;
  OutputOptions output;
};

void run_generate(const GenerateOptions& options) {
  Schedule schedule = make_schedule(options.name, options.shape);
  if (options.lower) schedule = lower(schedule, options.lowering.resolve());
  write_schedule(schedule, options.output);
}

}  // namespace

void add_generate_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = program.add_subcommand("generate", "Print a built-in schedule");
  command->footer(
      "Examples:\n"
      "  penstock generate 1f1b --ranks 4 --microbatches 8 --format table\n"
      "  penstock generate zbv -p 4 -m 8 --lower | penstock check -\n"
      "\n"
      "Prints the compute order: one line per rank, <stage><kind><microbatch> per cell, an idle\n"
      "slot as an empty cell. With --lower it prints the program that ranks run, with sends,\n"
      "receives and parameter actions.");
  command->add_option("name", options->name, "schedule; see 'penstock list'")
      ->required()
      ->type_name("NAME");
  expect_count(command->add_option("-p,--ranks", options->shape.num_ranks, "number of ranks"))
      ->required()
      ->type_name("P");
  expect_count(command->add_option("-m,--microbatches", options->shape.num_microbatches,
                                   "number of microbatches"))
      ->required()
      ->type_name("M");
  expect_count(command->add_option("-v,--stages-per-rank", options->shape.stages_per_rank,
                                   "stages on each rank (default: what the schedule is known for)"))
      ->type_name("V");
  command->add_flag("--lower", options->lower, "add sends, receives and parameter actions");
  add_lower_options(*command, options->lowering);
  add_output_options(*command, options->output);
  command->callback([options, &answer] {
    run_generate(*options);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
