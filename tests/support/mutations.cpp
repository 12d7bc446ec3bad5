#include "tests/support/mutations.h"

#include <utility>

#include "penstock/plan/schedule/placement.h"

namespace penstock::testing {
namespace {

std::vector<Action>& list_of(Schedule& schedule, int rank) {
  return schedule.ranks[static_cast<std::size_t>(rank)];
}

// At most one of the two has parts that concern one stage and microbatch, so that a container
// needs an action when any of its parts does.
class Dependencies {
 public:
  explicit Dependencies(const Schedule& schedule)
      : placement_(placement_of(schedule, extent_of(schedule).num_stages)) {}

  bool need_each_other(const Action& earlier, const Action& later) const {
    bool found = false;
    for_each_part(later, [&](const Action& later_part) {
      for_each_part(earlier, [&](const Action& earlier_part) {
        found = found || needs(later_part, earlier_part) || share_channel(earlier_part, later_part);
      });
    });
    return found;
  }

 private:
  // REDUCE_GRAD and RESHARD of a stage are not among these: the one is about gradients, the other
  // about parameters, and either may come first.
  static bool needs(const Action& later, const Action& earlier) {
    const bool same_stage = later.stage == earlier.stage;
    const bool same_cell = same_stage && later.microbatch == earlier.microbatch;
    const auto from_stage = [&](int stage) {
      return earlier.stage == stage && later.microbatch == earlier.microbatch;
    };
    switch (later.kind) {
      case ActionKind::Forward:
        return (same_stage && earlier.kind == ActionKind::Unshard) ||
               (same_cell && earlier.kind == ActionKind::ReceiveForward) ||
               (from_stage(later.stage - 1) && earlier.kind == ActionKind::Forward);
      case ActionKind::FullBackward:
      case ActionKind::InputBackward:
        return (same_stage && earlier.kind == ActionKind::Unshard) ||
               (same_cell && (earlier.kind == ActionKind::Forward ||
                              earlier.kind == ActionKind::ReceiveBackward)) ||
               (from_stage(later.stage + 1) && makes_input_gradient(earlier.kind));
      case ActionKind::WeightBackward:
        return (same_stage && earlier.kind == ActionKind::Unshard) ||
               (same_cell && earlier.kind == ActionKind::InputBackward);
      case ActionKind::SendForward:
        return same_cell && earlier.kind == ActionKind::Forward;
      case ActionKind::SendBackward:
        return same_cell && makes_input_gradient(earlier.kind);
      case ActionKind::ReduceGrad:
        return same_stage && makes_weight_gradient(earlier.kind);
      case ActionKind::Reshard:
        return same_stage && (is_compute(earlier.kind) || earlier.kind == ActionKind::Unshard);
      case ActionKind::Unshard:
        return same_stage && earlier.kind == ActionKind::Reshard;
      default:
        return false;
    }
  }

  // Two sends to one rank, or two receives from one rank.
  bool share_channel(const Action& earlier, const Action& later) const {
    const bool both_send = is_send(earlier.kind) && is_send(later.kind);
    const bool both_receive = is_receive(earlier.kind) && is_receive(later.kind);
    return (both_send || both_receive) && peer_of(earlier) == peer_of(later);
  }

  int peer_of(const Action& transfer) const {
    const bool is_below =
        transfer.kind == ActionKind::SendForward || transfer.kind == ActionKind::ReceiveBackward;
    return placement_.rank_of(is_below ? transfer.stage + 1 : transfer.stage - 1);
  }

  Placement placement_;
};

}  // namespace

std::vector<Position> all_positions(const Schedule& schedule) {
  std::vector<Position> positions;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const int num_steps = static_cast<int>(schedule.actions_of(rank).size());
    for (int step = 0; step < num_steps; ++step) positions.push_back({rank, step});
  }
  return positions;
}

Schedule without_action(Schedule schedule, Position position) {
  std::vector<Action>& list = list_of(schedule, position.rank);
  list.erase(list.begin() + position.step);
  return schedule;
}

Schedule with_action(Schedule schedule, Position place, const Action& action) {
  std::vector<Action>& list = list_of(schedule, place.rank);
  list.insert(list.begin() + place.step, action);
  return schedule;
}

std::vector<DependentPair> dependent_pairs(const Schedule& schedule) {
  const Dependencies dependencies(schedule);
  std::vector<DependentPair> pairs;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<Action>& actions = schedule.actions_of(rank);
    for (std::size_t later = 0; later < actions.size(); ++later) {
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        if (!dependencies.need_each_other(actions[earlier], actions[later])) continue;
        pairs.push_back({rank, static_cast<int>(earlier), static_cast<int>(later)});
      }
    }
  }
  return pairs;
}

Schedule with_exchanged(Schedule schedule, const DependentPair& pair) {
  std::vector<Action>& list = list_of(schedule, pair.rank);
  std::swap(list[static_cast<std::size_t>(pair.earlier)],
            list[static_cast<std::size_t>(pair.later)]);
  return schedule;
}

}  // namespace penstock::testing
