#pragma once

#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {

// What a report shows of one schedule.
struct ReportEntry {
  std::string name;
  Schedule program;
  CostModel costs;
  Timeline timeline;         // simulate(program, costs), or
  bool is_measured = false;  // what make_timeline() made of clock readings
};

// The entry of a lowered program, simulated. Throws as simulate() does.
ReportEntry make_report_entry(std::string name, Schedule program, CostModel costs);

// The entry of a program that ran. The page shows what was measured; if it has no simulated entry,
// its sliders simulate this one, from `costs`. Throws ArgumentError if `timeline` is not one of
// `program`.
ReportEntry make_measured_entry(std::string name, Schedule program, CostModel costs,
                                Timeline timeline);

}  // namespace penstock
