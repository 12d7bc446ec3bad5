#include "penstock/plan/schedule/schedule.h"

#include <algorithm>
#include <iterator>

namespace penstock {

Position first_lowered_action(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<Action>& actions = schedule.actions_of(rank);
    const auto found = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
      return action.kind != ActionKind::Idle && !is_compute(action.kind);
    });
    if (found != actions.end()) return {rank, static_cast<int>(found - actions.begin())};
  }
  return {};
}

std::size_t num_actions(const Schedule& schedule) {
  std::size_t count = 0;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) count += action.kind != ActionKind::Idle ? 1 : 0;
  }
  return count;
}

Extent extent_of(const Schedule& schedule) {
  int last_stage = -1;
  int last_microbatch = -1;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        last_stage = std::max(last_stage, part.stage);
        last_microbatch = std::max(last_microbatch, part.microbatch);
      });
    }
  }
  return {.num_stages = last_stage + 1, .num_microbatches = last_microbatch + 1};
}

Schedule compute_actions(const Schedule& schedule) {
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& kept = result.ranks.emplace_back();
    kept.reserve(actions.size());
    std::copy_if(actions.begin(), actions.end(), std::back_inserter(kept),
                 [](const Action& action) { return is_compute(action.kind); });
  }
  return result;
}

bool have_same_compute_order(const Schedule& left, const Schedule& right) {
  if (left.num_ranks() != right.num_ranks()) return false;
  const auto skip = [](auto place, auto end) {
    return std::find_if(place, end, [](const Action& action) { return is_compute(action.kind); });
  };
  for (int rank = 0; rank < left.num_ranks(); ++rank) {
    const auto left_end = left.actions_of(rank).end();
    const auto right_end = right.actions_of(rank).end();
    auto from_left = skip(left.actions_of(rank).begin(), left_end);
    auto from_right = skip(right.actions_of(rank).begin(), right_end);
    while (from_left != left_end && from_right != right_end) {
      if (*from_left != *from_right) return false;
      from_left = skip(from_left + 1, left_end);
      from_right = skip(from_right + 1, right_end);
    }
    if (from_left != left_end || from_right != right_end) return false;
  }
  return true;
}

}  // namespace penstock
