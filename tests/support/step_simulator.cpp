#include "tests/support/step_simulator.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

class StepSimulator {
 public:
  explicit StepSimulator(const Schedule& schedule)
      : num_stages_(extent_of(schedule).num_stages), next_(schedule.ranks.size()) {
    for (const std::vector<Action>& actions : schedule.ranks) {
      std::vector<Action>& list = lists_.emplace_back();
      std::copy_if(actions.begin(), actions.end(), std::back_inserter(list),
                   [](const Action& action) { return action.kind != ActionKind::Idle; });
    }
  }

  std::optional<int> run() {
    int num_steps = 0;
    for (; !is_finished(); ++num_steps) {
      bool progresses = false;
      std::vector<std::size_t> waiting;
      for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
        if (next_[rank] == lists_[rank].size()) continue;
        if (try_next(rank)) {
          progresses = true;
        } else {
          waiting.push_back(rank);
        }
      }
      if (!progresses) return std::nullopt;
      for (const std::size_t rank : waiting) try_next(rank);
    }
    return num_steps;
  }

 private:
  bool is_finished() const {
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      if (next_[rank] < lists_[rank].size()) return false;
    }
    return true;
  }

  bool try_next(std::size_t rank) {
    const Action& action = lists_[rank][next_[rank]];
    if (!is_ready(action)) return false;
    done_.insert(to_string(action));
    ++next_[rank];
    return true;
  }

  bool is_done(int stage, ActionKind kind, int microbatch) const {
    return done_.contains(
        to_string(Action{.stage = stage, .kind = kind, .microbatch = microbatch}));
  }

  bool has_gradient(int stage, int microbatch) const {
    return is_done(stage, ActionKind::InputBackward, microbatch) ||
           is_done(stage, ActionKind::FullBackward, microbatch);
  }

  bool is_ready(const Action& action) const {
    const int stage = action.stage;
    const int microbatch = action.microbatch;
    switch (action.kind) {
      case ActionKind::Forward:
        return stage == 0 || is_done(stage, ActionKind::ReceiveForward, microbatch) ||
               is_done(stage - 1, ActionKind::Forward, microbatch);
      case ActionKind::FullBackward:
      case ActionKind::InputBackward:
        return stage + 1 == num_stages_ ||
               is_done(stage, ActionKind::ReceiveBackward, microbatch) ||
               has_gradient(stage + 1, microbatch);
      case ActionKind::WeightBackward:
        return true;
      case ActionKind::SendForward:
        return is_done(stage, ActionKind::Forward, microbatch);
      case ActionKind::ReceiveForward:
        return is_done(stage - 1, ActionKind::SendForward, microbatch);
      case ActionKind::SendBackward:
        return has_gradient(stage, microbatch);
      case ActionKind::ReceiveBackward:
        return is_done(stage + 1, ActionKind::SendBackward, microbatch);
      default:
        throw std::invalid_argument("no steps are defined for " + to_string(action));
    }
  }

  int num_stages_;
  std::vector<std::vector<Action>> lists_;
  std::vector<std::size_t> next_;
  std::set<std::string> done_;
};

}  // namespace

std::optional<int> simulated_steps(const Schedule& schedule) {
  return StepSimulator(schedule).run();
}

}  // namespace penstock::testing
