#pragma once

#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/internal/routes.h"
#include "penstock/plan/simulator/timeline.h"

namespace penstock {

// Sets ActionTime::cause of every action of a run, from when each of them started and ended.
void find_causes(const Schedule& program, const Routes& routes,
                 std::vector<std::vector<ActionTime>>& times);

}  // namespace penstock
