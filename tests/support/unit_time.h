#pragma once

#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock::testing {

// When a compute order runs, each rank in the order of its list and as early as its inputs allow:
// F, I and W take one unit of time, B two, a container the sum of its parts, a transfer nothing.
struct UnitTimes {
  int makespan = 0;

  // By rank: from the start of its first action to the end of its last, minus its work.
  std::vector<int> idle_within;
};

// Throws std::invalid_argument if the order cannot run to its end.
UnitTimes run_in_unit_time(const Schedule& order);

}  // namespace penstock::testing
