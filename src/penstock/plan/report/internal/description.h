#pragma once

#include <string>

#include "penstock/plan/report/report_entry.h"

namespace penstock {

// In milliseconds, exact, without the unit and without trailing zeros: "18.522".
std::string milliseconds_text(Duration time);

// "17.95 %"
std::string percent_text(double share);

// "8 ranks, 16 stages, 32 microbatches"
std::string describe_shape(const Schedule& program);

// "F 1 ms, I 1 ms, W 1 ms, hop 0 ms", with a range where stages differ, and whatever else is not as
// CostModel::uniform() sets it.
std::string describe_costs(const CostModel& costs);

// "makespan 39 ms, bubble 17.95 % (makespan), 17.95 % (span)", and "measured: " first if it was.
std::string describe_result(const ReportEntry& entry);

}  // namespace penstock
