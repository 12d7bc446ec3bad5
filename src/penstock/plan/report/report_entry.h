#pragma once

#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {

// What a report shows of one schedule. `timeline` is simulate(program, costs).
struct ReportEntry {
  std::string name;
  Schedule program;
  CostModel costs;
  Timeline timeline;
};

// The entry of a lowered program, simulated. Throws as simulate() does.
ReportEntry make_report_entry(std::string name, Schedule program, CostModel costs);

}  // namespace penstock
