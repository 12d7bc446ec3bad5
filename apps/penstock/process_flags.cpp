#include "process_flags.h"

#include <cstdint>

#include <fmt/format.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

std::chrono::milliseconds ProcessFlags::deadline(std::chrono::milliseconds otherwise) const {
  if (deadline_s == 0) return otherwise;
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * deadline_s));
}

void add_process_options(CLI::App& command, ProcessFlags& flags, const std::string& usual,
                         const std::string& group) {
  command
      .add_option("--deadline", flags.deadline_s,
                  "seconds without progress after which ranks give each other up; more than any "
                  "action takes; default: " +
                      usual)
      ->check([](const std::string& text) -> std::string {
        constexpr double kLongest = 1e6;
        const std::vector<double> numbers = parse_numbers(text, 1);
        if (!numbers.empty() && numbers[0] >= 1e-3 && numbers[0] <= kLongest) return "";
        return fmt::format("expected seconds from 0.001 to {:.0f}, found {}", kLongest,
                           quote(text));
      })
      ->type_name("SECONDS")
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
