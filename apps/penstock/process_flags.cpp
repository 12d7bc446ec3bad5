#include "process_flags.h"

#include <cstdint>

#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

namespace {

std::chrono::milliseconds given_or(double seconds, std::chrono::milliseconds otherwise) {
  if (seconds == 0) return otherwise;
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

CLI::Option* expect_seconds(CLI::Option* option) {
  return option
      ->check([](const std::string& text) -> std::string {
        constexpr double kLongest = 1e6;
        const std::vector<double> numbers = parse_numbers(text, 1);
        if (!numbers.empty() && numbers[0] >= 1e-3 && numbers[0] <= kLongest) return "";
        return fmt::format("expected seconds from 0.001 to {:.0f}, found {}", kLongest,
                           quote(text));
      })
      ->type_name("SECONDS");
}

}  // namespace

std::chrono::milliseconds ProcessFlags::deadline(std::chrono::milliseconds otherwise) const {
  return given_or(deadline_s, otherwise);
}

std::chrono::milliseconds ProcessFlags::join_timeout(std::chrono::milliseconds otherwise) const {
  return given_or(join_s, otherwise);
}

void add_process_options(CLI::App& command, ProcessFlags& flags, const std::string& usual,
                         const std::string& group) {
  expect_seconds(command.add_option(
                     "--deadline", flags.deadline_s,
                     "seconds without progress after which ranks give each other up; more than any "
                     "action takes; default: " +
                         usual))
      ->group(group);
  expect_seconds(command.add_option("--join-timeout", flags.join_s,
                                    "with ranks as processes: seconds for all of them to be there; "
                                    "default: 60"))
      ->group(group);
  command
      .add_option("--replay", flags.replay_path,
                  "with ranks as processes: write to this file how they stood if they stall")
      ->type_name("FILE")
      ->group(group);
}

void require_no_replay(const ProcessFlags& flags) {
  if (flags.replay_path.empty()) return;
  throw ArgumentError(
      "--replay is for ranks that are processes; give --transport shm or gloo, or leave it out");
}

}  // namespace penstock
