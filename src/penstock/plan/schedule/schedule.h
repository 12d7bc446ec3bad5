#pragma once

#include <cstddef>
#include <vector>

#include "penstock/plan/schedule/action.h"

namespace penstock {

// Who does what, in which order: one list of actions per rank. Nothing else is stored; the number
// of stages, their placement and the number of microbatches follow from the actions.
//
// A *compute order* has computing actions and idle slots only; a *lowered* schedule also has the
// sends, receives and parameter actions, and no idle slots: it is the program that ranks run.
struct Schedule {
  std::vector<std::vector<Action>> ranks;

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  const std::vector<Action>& actions_of(int rank) const {
    return ranks[static_cast<std::size_t>(rank)];
  }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// A place in a schedule: entry number `step` in the list of `rank`.
struct Position {
  int rank = -1;
  int step = -1;

  bool exists() const { return rank >= 0; }
  friend auto operator<=>(const Position&, const Position&) = default;
};

inline const Action& action_at(const Schedule& schedule, Position position) {
  return schedule.actions_of(position.rank)[static_cast<std::size_t>(position.step)];
}

// The first action that only lowering adds, in rank order; a position that does not exist if the
// schedule is a compute order.
Position first_lowered_action(const Schedule& schedule);

inline bool is_lowered(const Schedule& schedule) {
  return first_lowered_action(schedule).exists();
}

std::size_t num_actions(const Schedule& schedule);

// The extent of a schedule: every stage and microbatch index that occurs is below these.
struct Extent {
  int num_stages = 0;
  int num_microbatches = 0;
};
Extent extent_of(const Schedule& schedule);

// The computing actions of each rank in their order, without idle slots.
Schedule compute_actions(const Schedule& schedule);

// compute_actions(left) == compute_actions(right), without making either.
bool have_same_compute_order(const Schedule& left, const Schedule& right);

}  // namespace penstock
