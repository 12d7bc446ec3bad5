#include "schedule_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/placement.h"

namespace penstock {
namespace {

bool is_file(const std::string& source) {
  std::error_code ignored;
  return source == "-" || std::filesystem::exists(source, ignored);
}

// Names never look like this, so the user meant a file.
bool looks_like_file(const std::string& source) {
  return source.find_first_of("/.") != std::string::npos;
}

Schedule make_named(const std::string& name, const ScheduleShape& shape) {
  const ScheduleFamily& family = schedule_family(name);
  if (shape.num_ranks == 0 || shape.num_microbatches == 0) {
    throw ArgumentError(
        fmt::format("{} needs --ranks and --microbatches, for example --ranks 4 --microbatches 8",
                    family.name));
  }
  return family.make(shape);
}

int most_stages_per_rank(const Placement& placement, int num_ranks) {
  int most = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto& ranks = placement.ranks();
    most = std::max(most, static_cast<int>(std::count(ranks.begin(), ranks.end(), rank)));
  }
  return most;
}

}  // namespace

void add_source_options(CLI::App& command, SourceFlags& flags) {
  expect_count(command.add_option("-p,--ranks", flags.shape.num_ranks, "number of ranks"))
      ->type_name("P");
  expect_count(command.add_option("-m,--microbatches", flags.shape.num_microbatches,
                                  "number of microbatches"))
      ->type_name("M");
  expect_count(command.add_option("-v,--stages-per-rank", flags.shape.stages_per_rank,
                                  "stages on each rank (default: what the schedule is known for)"))
      ->type_name("V");
  add_lower_options(command, flags.lowering);
}

Program load_program(const std::string& source, const SourceFlags& flags) {
  Program program;
  Schedule schedule;
  if (names_file(source)) {
    program.name = source == "-" ? "standard input" : source;
    schedule = read_schedule(source);
  } else {
    program.name = schedule_family(source).name;
    schedule = make_named(source, flags.shape);
  }
  if (is_lowered(schedule)) {
    require_valid(schedule);
    program.schedule = std::move(schedule);
  } else {
    program.schedule = lower(schedule, flags.lowering.resolve());
  }
  const Extent extent = extent_of(program.schedule);
  program.num_stages = extent.num_stages;
  program.num_microbatches = extent.num_microbatches;
  program.stages_per_rank = most_stages_per_rank(placement_of(program.schedule, extent.num_stages),
                                                 program.schedule.num_ranks());
  return program;
}

bool names_file(const std::string& source) {
  return is_file(source) || looks_like_file(source);
}

std::string describe(const Program& program) {
  return fmt::format("{}, {}, {}", counted(program.schedule.num_ranks(), "rank", "ranks"),
                     counted(program.num_stages, "stage", "stages"),
                     counted(program.num_microbatches, "microbatch", "microbatches"));
}

}  // namespace penstock
