#include "commands.h"
#include "penstock/base/error.h"

namespace penstock {

void add_bench_command(CLI::App& program, Answer& /*answer*/) {
  auto* command = program.add_subcommand("bench", "Measure pipelines (not in this build)");
  command->allow_extras();
  command->callback([] {
    throw ArgumentError(
        "this program was built without libtorch, so it cannot run pipelines; configure with "
        "-DPENSTOCK_BUILD_RUN=ON");
  });
}

}  // namespace penstock
