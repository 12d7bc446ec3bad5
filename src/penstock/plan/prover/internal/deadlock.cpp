#include <algorithm>
#include <string>

#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

enum class Sends {
  Rendezvous,  // a send completes only when its receive is posted
  Buffered,    // a send completes at once
  Implicit,    // there are no sends: a value is everywhere as soon as it is computed
};

// Lets all ranks run as far as they can. A receive only posts; whoever uses its value waits.
class Progress {
 public:
  Progress(const ActionIndex& index, Sends sends)
      : index_(index),
        schedule_(index.schedule()),
        sends_(sends),
        next_(schedule_.ranks.size()),
        waiting_(schedule_.ranks.size()) {}

  // True if every rank reaches the end of its list.
  bool run() {
    std::vector<int> runnable;
    std::vector<int> woken;
    woken.reserve(schedule_.ranks.size());
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) woken.push_back(rank);
    while (!woken.empty()) {
      std::swap(runnable, woken);
      woken.clear();
      for (const int rank : runnable) {
        advance(rank);
        wake_ranks_waiting_for(rank, woken);
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (!is_finished(rank)) return false;
    }
    return true;
  }

  bool is_finished(int rank) const {
    return next(rank) == static_cast<int>(schedule_.actions_of(rank).size());
  }
  int next(int rank) const { return next_[static_cast<std::size_t>(rank)]; }

  // What the next action of `rank` waits for and has not got.
  std::vector<Position> unmet(int rank) const {
    std::vector<Position> result;
    for_each_awaited(rank, [&](Position awaited) {
      if (next(awaited.rank) <= awaited.step) result.push_back(awaited);
    });
    return result;
  }

 private:
  struct Waiter {
    int rank;
    int step;  // of the rank that is waited for
  };

  void advance(int rank) {
    int& step = next_[static_cast<std::size_t>(rank)];
    const std::vector<Action>& actions = schedule_.actions_of(rank);
    for (; step < static_cast<int>(actions.size()); ++step) {
      if (!may_wait(actions[static_cast<std::size_t>(step)].kind)) continue;
      Position blocker;
      for_each_awaited(rank, [&](Position awaited) {
        if (next(awaited.rank) <= awaited.step) blocker = awaited;
      });
      if (blocker.exists()) {
        waiting_[static_cast<std::size_t>(blocker.rank)].push_back({rank, blocker.step});
        return;
      }
    }
  }

  static bool may_wait(ActionKind kind) {
    return is_send(kind) || (is_compute(kind) && kind != ActionKind::WeightBackward);
  }

  void wake_ranks_waiting_for(int rank, std::vector<int>& woken) {
    std::erase_if(waiting_[static_cast<std::size_t>(rank)], [&](const Waiter& waiter) {
      if (next(rank) <= waiter.step) return false;
      woken.push_back(waiter.rank);
      return true;
    });
  }

  // Visits the positions on other ranks that must have run before the next action of `rank` can.
  // What is missing or on the same rank is for the other rules to report.
  template <typename Visit>
  void for_each_awaited(int rank, Visit&& visit) const {
    const Action& action = action_at(schedule_, {rank, next(rank)});
    for_each_part(action, [&](const Action& part) {
      const Position awaited = awaited_by(part);
      if (awaited.step != kAbsent && awaited.rank != rank) visit(awaited);
    });
  }

  Position awaited_by(const Action& part) const {
    const bool implicit = sends_ == Sends::Implicit;
    const bool has_above = part.stage > 0;
    const bool has_below = part.stage + 1 < index_.num_stages();
    switch (part.kind) {
      case ActionKind::Forward:
        if (!has_above) return {};
        return above(part, implicit ? ActionKind::Forward : ActionKind::SendForward);
      case ActionKind::FullBackward:
      case ActionKind::InputBackward:
        if (!has_below) return {};
        if (!implicit) return below(part, ActionKind::SendBackward);
        return index_.position(part.stage + 1,
                               index_.gradient_step(part.stage + 1, part.microbatch));
      case ActionKind::SendForward:
        if (sends_ != Sends::Rendezvous || !has_below) return {};
        return below(part, ActionKind::ReceiveForward);
      case ActionKind::SendBackward:
        if (sends_ != Sends::Rendezvous || !has_above) return {};
        return above(part, ActionKind::ReceiveBackward);
      default:
        return {};
    }
  }
  Position above(const Action& part, ActionKind kind) const {
    return index_.position(part.stage - 1, index_.step(kind, part.stage - 1, part.microbatch));
  }
  Position below(const Action& part, ActionKind kind) const {
    return index_.position(part.stage + 1, index_.step(kind, part.stage + 1, part.microbatch));
  }

  const ActionIndex& index_;
  const Schedule& schedule_;
  Sends sends_;
  std::vector<int> next_;                     // by rank: the step it is at
  std::vector<std::vector<Waiter>> waiting_;  // by rank: who waits for it
};

// The shortest cycle among the stuck ranks: rank i waits for entry i, which the next rank has not
// reached. Breadth first from every rank; stuck ranks wait for one or two others.
std::vector<Position> smallest_cycle(const Progress& progress, int num_ranks) {
  std::vector<std::vector<Position>> edges(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (!progress.is_finished(rank)) edges[static_cast<std::size_t>(rank)] = progress.unmet(rank);
  }
  std::vector<Position> best;
  for (int start = 0; start < num_ranks; ++start) {
    // By rank: the rank it was reached from and what that rank waits for.
    std::vector<std::pair<int, Position>> reached(static_cast<std::size_t>(num_ranks), {-1, {}});
    std::vector<int> queue = {start};
    for (std::size_t head = 0; head < queue.size(); ++head) {
      for (const Position awaited : edges[static_cast<std::size_t>(queue[head])]) {
        auto& [from, what] = reached[static_cast<std::size_t>(awaited.rank)];
        if (from >= 0) continue;
        from = queue[head];
        what = awaited;
        queue.push_back(awaited.rank);
      }
    }
    std::vector<Position> cycle;
    int rank = start;
    while (reached[static_cast<std::size_t>(rank)].first >= 0) {
      cycle.push_back(reached[static_cast<std::size_t>(rank)].second);
      rank = reached[static_cast<std::size_t>(rank)].first;
      if (rank == start) break;
    }
    const bool is_closed = !cycle.empty() && rank == start;
    if (is_closed && (best.empty() || cycle.size() < best.size())) {
      std::reverse(cycle.begin(), cycle.end());
      best = cycle;
    }
  }
  return best;
}

void report_deadlock(const Schedule& schedule, const Progress& progress, std::string_view condition,
                     Violations& violations) {
  const std::vector<Position> cycle = smallest_cycle(progress, schedule.num_ranks());
  if (cycle.empty()) return;
  std::string story;
  int rank = cycle.back().rank;
  const Position first{rank, progress.next(rank)};
  for (const Position awaited : cycle) {
    const int step = progress.next(rank);
    story += fmt::format("{}rank {} waits at step {} ({}) for rank {} to run step {} ({})",
                         story.empty() ? "" : "; ", rank, step,
                         to_string(action_at(schedule, {rank, step})), awaited.rank, awaited.step,
                         to_string(action_at(schedule, awaited)));
    rank = awaited.rank;
  }
  violations.add(Rule::Deadlock, first, "deadlock {}: {}", condition, story);
}

}  // namespace

void check_deadlock(const ActionIndex& index, bool with_communication, Violations& violations) {
  const Schedule& schedule = index.schedule();
  if (!with_communication) {
    Progress progress(index, Sends::Implicit);
    if (!progress.run()) {
      report_deadlock(schedule, progress, "in any transport", violations);
    }
    return;
  }
  Progress rendezvous(index, Sends::Rendezvous);
  if (rendezvous.run()) return;  // then buffering, which waits for less, finishes too
  Progress buffered(index, Sends::Buffered);
  if (buffered.run()) {
    report_deadlock(schedule, rendezvous, "under rendezvous (buffered sends would complete)",
                    violations);
  } else {
    report_deadlock(schedule, buffered, "even with buffered sends", violations);
  }
}

}  // namespace penstock
