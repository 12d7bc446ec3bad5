#include "penstock/plan/passes/add_sharding.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

// For every entry of a list, the stages needed from there on, soonest first: as many as may be
// active, and all that the last entry looked at needs.
class LookAhead {
 public:
  LookAhead(const std::vector<Action>& actions, int max_active_stages) {
    // Walking backwards, the stages by next use are a move-to-front list.
    std::vector<NextUse> by_next_use;
    ends_.resize(actions.size() + 1);
    for (std::size_t step = actions.size(); step-- > 0;) {
      if (actions[step].kind != ActionKind::Overlap) {
        move_to_front(by_next_use, {actions[step].stage, step});
      }
      for (std::size_t part = actions[step].parts.size(); part-- > 0;) {
        move_to_front(by_next_use, {actions[step].parts[part].stage, step});
      }
      for (std::size_t i = 0; i < by_next_use.size(); ++i) {
        const bool is_full = i >= static_cast<std::size_t>(max_active_stages);
        if (is_full && by_next_use[i].step != by_next_use[i - 1].step) break;
        stages_.push_back(by_next_use[i].stage);
      }
      ends_[step] = stages_.size();
    }
  }

  std::span<const int> at(std::size_t step) const {
    const std::size_t begin = ends_[step + 1];
    return std::span(stages_).subspan(begin, ends_[step] - begin);
  }

 private:
  struct NextUse {
    int stage;
    std::size_t step;
  };

  static void move_to_front(std::vector<NextUse>& list, NextUse use) {
    auto place = std::find_if(list.begin(), list.end(),
                              [&](const NextUse& entry) { return entry.stage == use.stage; });
    if (place == list.end()) place = list.insert(place, use);
    *place = use;
    std::rotate(list.begin(), place, place + 1);
  }

  std::vector<int> stages_;        // of the last step first
  std::vector<std::size_t> ends_;  // by step: where its stages end, the next step's end before
};

std::vector<Action> add_to_rank(const std::vector<Action>& with_idle, int max_active_stages) {
  std::vector<Action> actions;
  actions.reserve(with_idle.size());
  for (const Action& action : with_idle) {
    if (action.kind != ActionKind::Idle) actions.push_back(action);
  }

  const LookAhead look_ahead(actions, max_active_stages);
  std::vector<Action> result;
  result.reserve(actions.size() + actions.size() / 8 + 8);
  std::vector<int> active;  // ascending
  for (std::size_t step = 0; step < actions.size(); ++step) {
    const std::span<const int> needed = look_ahead.at(step);
    std::erase_if(active, [&](int stage) {
      if (std::find(needed.begin(), needed.end(), stage) != needed.end()) return false;
      result.push_back({.stage = stage, .kind = ActionKind::Reshard});
      return true;
    });
    for (const int stage : needed) {
      const auto place = std::lower_bound(active.begin(), active.end(), stage);
      if (place != active.end() && *place == stage) continue;
      result.push_back({.stage = stage, .kind = ActionKind::Unshard});
      active.insert(place, stage);
    }
    result.push_back(std::move(actions[step]));
  }
  for (const int stage : active) result.push_back({.stage = stage, .kind = ActionKind::Reshard});
  return result;
}

}  // namespace

Schedule add_sharding(const Schedule& schedule, const ShardingOptions& options) {
  if (options.max_active_stages < 1) {
    throw ArgumentError(fmt::format("the number of active stages must be at least 1, not {}",
                                    options.max_active_stages));
  }
  Schedule result;
  result.ranks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    result.ranks.push_back(add_to_rank(actions, options.max_active_stages));
  }
  return result;
}

}  // namespace penstock
