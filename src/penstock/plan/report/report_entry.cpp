#include "penstock/plan/report/report_entry.h"

#include <utility>

namespace penstock {

ReportEntry make_report_entry(std::string name, Schedule program, CostModel costs) {
  Timeline timeline = simulate(program, costs);
  return {std::move(name), std::move(program), std::move(costs), std::move(timeline)};
}

}  // namespace penstock
