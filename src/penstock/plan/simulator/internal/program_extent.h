#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// The extent of `program`, if its grids can be held: a stray index must not allocate gigabytes.
// Throws ScheduleError for a program that has one.
Extent require_extent(const Schedule& program);

}  // namespace penstock
