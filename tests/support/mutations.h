#pragma once

#include <cstddef>
#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock::testing {

// Small ways to break a schedule. A valid, lowered schedule has no redundant action, so each of
// these must be noticed.

std::vector<Position> all_positions(const Schedule& schedule);

Schedule without_action(Schedule schedule, Position position);

// `action` in front of entry `place`, which may be one past the last of its rank.
Schedule with_action(Schedule schedule, Position place, const Action& action);

// Two entries of one rank, the later of which needs the earlier or has to stay behind it.
struct DependentPair {
  int rank;
  int earlier;
  int later;
};
std::vector<DependentPair> dependent_pairs(const Schedule& schedule);

Schedule with_exchanged(Schedule schedule, const DependentPair& pair);

}  // namespace penstock::testing
