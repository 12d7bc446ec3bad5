#pragma once

#include <string>
#include <vector>

#include "penstock/plan/generators/shape.h"
#include "penstock/plan/report/report_entry.h"

namespace penstock::testing {

// A built-in schedule, lowered and simulated.
ReportEntry make_entry(const std::string& name, const ScheduleShape& shape, const CostModel& costs);

// Costs that use everything a cost model has, different on every stage.
CostModel elaborate_costs(int num_stages, SendMode sends);

// A run as it might have been measured: the simulated one, with actions that start late, sends that
// take some time, and clocks that differ.
ReportEntry make_measured_sample(const std::string& name, const Schedule& program,
                                 const CostModel& costs);

// Every built-in schedule in several shapes, each with simple and with elaborate costs, and as if
// it had been measured.
std::vector<ReportEntry> sample_entries();

}  // namespace penstock::testing
