#include "penstock/plan/passes/add_communication.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/base/assert.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/placement.h"

namespace penstock {
namespace {

// Plays the compute order in rounds. In a round every rank, in ascending order, places its next
// action if what it needs is there. A rank that has to wait sleeps until a message for it is sent.
class CommunicationPlanner {
 public:
  explicit CommunicationPlanner(const Schedule& schedule)
      : schedule_(schedule),
        extent_(extent_of(schedule)),
        placement_(placement_of(schedule, extent_.num_stages)),
        available_(extent_),
        next_(schedule.ranks.size()),
        is_asleep_(schedule.ranks.size()) {
    result_.ranks.resize(schedule.ranks.size());
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      out(rank).reserve(schedule.actions_of(rank).size() * 3);
    }
  }

  // False if some rank is left waiting for a message that never comes.
  bool plan() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) next_round_.push_back(rank);
    std::size_t num_finished = 0;
    while (!next_round_.empty()) {
      std::swap(round_, next_round_);
      next_round_.clear();
      // By index: a message may add ranks further down the round.
      // NOLINTNEXTLINE(modernize-loop-convert)
      for (std::size_t turn = 0; turn < round_.size(); ++turn) {
        const int rank = round_[turn];
        const std::vector<Action>& actions = schedule_.actions_of(rank);
        std::size_t& next = next_[static_cast<std::size_t>(rank)];
        if (next == actions.size()) {
          ++num_finished;
        } else if (!is_ready(actions[next])) {
          is_asleep_[static_cast<std::size_t>(rank)] = 1;
        } else {
          place(actions[next], rank);
          ++next;
          insert_sorted(next_round_, rank);
        }
      }
    }
    return num_finished == schedule_.ranks.size();
  }

  Schedule take() { return std::move(result_); }

 private:
  // Which inputs of a (stage, microbatch) pair are on its rank: received, or computed there.
  struct Available {
    bool activation = false;
    bool gradient = false;
  };

  static void insert_sorted(std::vector<int>& ranks, int rank) {
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
  }

  std::vector<Action>& out(int rank) { return result_.ranks[static_cast<std::size_t>(rank)]; }

  bool is_ready(const Action& action) const {
    bool ready = true;
    for_each_part(action, [&](const Action& part) {
      if (part.kind == ActionKind::Forward && part.stage > 0) {
        ready = ready && available_.at(part.stage, part.microbatch).activation;
      } else if (makes_input_gradient(part.kind) && part.stage + 1 < extent_.num_stages) {
        ready = ready && available_.at(part.stage, part.microbatch).gradient;
      }
    });
    return ready;
  }

  void place(const Action& action, int rank) {
    if (action.kind == ActionKind::Idle) return;
    out(rank).push_back(action);
    for_each_part(action, [&](const Action& part) {
      if (part.kind == ActionKind::Forward && part.stage + 1 < extent_.num_stages) {
        available_.at(part.stage + 1, part.microbatch).activation = true;
        transfer(part, ActionKind::SendForward, ActionKind::ReceiveForward, part.stage + 1, rank);
      } else if (makes_input_gradient(part.kind) && part.stage > 0) {
        available_.at(part.stage - 1, part.microbatch).gradient = true;
        transfer(part, ActionKind::SendBackward, ActionKind::ReceiveBackward, part.stage - 1, rank);
      }
    });
  }

  void transfer(const Action& part, ActionKind send, ActionKind receive, int to_stage, int sender) {
    const int receiver = placement_.rank_of(to_stage);
    if (receiver == sender || receiver == Placement::kUnplaced) return;
    out(sender).push_back({.stage = part.stage, .kind = send, .microbatch = part.microbatch});
    out(receiver).push_back({.stage = to_stage, .kind = receive, .microbatch = part.microbatch});
    char& is_asleep = is_asleep_[static_cast<std::size_t>(receiver)];
    if (is_asleep != 0) {
      is_asleep = 0;
      insert_sorted(receiver > sender ? round_ : next_round_, receiver);
    }
  }

  const Schedule& schedule_;
  Extent extent_;
  Placement placement_;
  MicrobatchGrid<Available> available_;
  std::vector<std::size_t> next_;  // by rank: its next action
  std::vector<char> is_asleep_;    // by rank
  std::vector<int> round_;         // the ranks awake in this round, ascending
  std::vector<int> next_round_;    // and in the next
  Schedule result_;
};

}  // namespace

Schedule add_communication(const Schedule& schedule) {
  CommunicationPlanner planner(schedule);
  if (!planner.plan()) {
    require_valid(
        schedule,
        {.rules = RuleSet::all().without({Rule::Communication, Rule::Sharding, Rule::Reduction})});
    PENSTOCK_ASSERT(false, "an order that is free of deadlock can be given its communication");
  }
  return planner.take();
}

}  // namespace penstock
