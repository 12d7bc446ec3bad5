#pragma once

#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// Throws ArgumentError if options contradict each other, or ask for what no pipeline does.
void require_options(const ScheduleOptions& options);

}  // namespace penstock
