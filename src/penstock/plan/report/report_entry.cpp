#include "penstock/plan/report/report_entry.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {

ReportEntry make_report_entry(std::string name, Schedule program, CostModel costs) {
  Timeline timeline = simulate(program, costs);
  return {std::move(name), std::move(program), std::move(costs), std::move(timeline)};
}

ReportEntry make_measured_entry(std::string name, Schedule program, CostModel costs,
                                Timeline timeline) {
  const bool fits = std::equal(
      program.ranks.begin(), program.ranks.end(), timeline.times.begin(), timeline.times.end(),
      [](const auto& actions, const auto& times) { return actions.size() == times.size(); });
  if (!fits) throw ArgumentError("the timeline is one of another schedule");
  require_costs(costs, program);
  return {.name = std::move(name),
          .program = std::move(program),
          .costs = std::move(costs),
          .timeline = std::move(timeline),
          .is_measured = true};
}

}  // namespace penstock
