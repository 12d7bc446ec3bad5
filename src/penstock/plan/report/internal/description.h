#pragma once

#include <string>

#include "penstock/plan/report/report_entry.h"

namespace penstock {

// "17.95 %"
std::string percent_text(double share);

// "8 ranks, 16 stages, 32 microbatches"
std::string describe_shape(const Schedule& program);

// "makespan 39 ms, bubble 17.95 % (makespan), 17.95 % (span)", and "measured: " first if it was.
std::string describe_result(const ReportEntry& entry);

}  // namespace penstock
