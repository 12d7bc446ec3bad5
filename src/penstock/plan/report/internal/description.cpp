#include "penstock/plan/report/internal/description.h"

#include <fmt/format.h>

#include "penstock/base/text.h"

namespace penstock {

std::string percent_text(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

std::string describe_shape(const Schedule& program) {
  const Extent extent = extent_of(program);
  return fmt::format("{}, {}, {}", counted(program.num_ranks(), "rank", "ranks"),
                     counted(extent.num_stages, "stage", "stages"),
                     counted(extent.num_microbatches, "microbatch", "microbatches"));
}

std::string describe_result(const ReportEntry& entry) {
  return fmt::format(
      "{}makespan {} ms, bubble {} (makespan), {} (span)", entry.is_measured ? "measured: " : "",
      milliseconds_text(entry.timeline.makespan), percent_text(entry.timeline.makespan_bubble),
      percent_text(entry.timeline.span_bubble));
}

}  // namespace penstock
