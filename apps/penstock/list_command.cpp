#include <fmt/format.h>

#include "commands.h"
#include "penstock/plan/generators/registry.h"
#include "schedule_io.h"

namespace penstock {
namespace {

std::string stages_per_rank(const ScheduleFamily& family) {
  if (family.max_stages_per_rank == ScheduleFamily::kAnyNumber) {
    return fmt::format("{}+", family.min_stages_per_rank);
  }
  if (family.max_stages_per_rank == family.min_stages_per_rank) {
    return fmt::format("{}", family.min_stages_per_rank);
  }
  return fmt::format("{}-{}", family.min_stages_per_rank, family.max_stages_per_rank);
}

std::string list_schedules() {
  std::string text =
      fmt::format("{:<23}{:<7}{:<17}{}\n", "SCHEDULE", "RANKS", "STAGES PER RANK", "WHAT IT DOES");
  for (const ScheduleFamily& family : schedule_families()) {
    const bool any_ranks = family.num_ranks == ScheduleFamily::kAnyNumber;
    text += fmt::format("{:<23}{:<7}{:<17}{}\n", family.name,
                        any_ranks ? "1+" : fmt::format("{}", family.num_ranks),
                        stages_per_rank(family), family.summary);
  }
  return text;
}

}  // namespace

void add_list_command(CLI::App& program, Answer& answer) {
  CLI::App* command = program.add_subcommand("list", "List the built-in schedules");
  command->footer("Example:\n  penstock list");
  command->callback([&answer] {
    write_output(list_schedules(), "-");
    answer = Answer::Yes;
  });
}

}  // namespace penstock
