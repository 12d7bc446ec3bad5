#include "penstock/plan/simulator/internal/causes.h"

#include <algorithm>

namespace penstock {
namespace {

class CauseFinder {
 public:
  CauseFinder(const Schedule& program, const Routes& routes,
              std::vector<std::vector<ActionTime>>& times)
      : program_(program),
        routes_(routes),
        times_(times),
        gathers_(static_cast<std::size_t>(routes.placement().num_stages())) {}

  void find(int rank) {
    state_ = {};
    const std::vector<Action>& actions = program_.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Action& action = actions[static_cast<std::size_t>(step)];
      const Position here{rank, step};
      if (is_compute(action.kind)) {
        at(here).cause = latest_input(action, rank);
        hold_rank(here);
      } else if (is_send(action.kind)) {
        send(action, here);
      } else if (is_receive(action.kind)) {
        receive(action, here);
      } else {
        stream(action, here);
      }
    }
  }

 private:
  struct RankState {
    Duration free{};     // the end of the last action that held the rank up
    Position free_from;  // that action
    Position stream;     // the last gather or reduction; they run beside the computation
  };

  ActionTime& at(Position position) {
    return times_[static_cast<std::size_t>(position.rank)][static_cast<std::size_t>(position.step)];
  }

  void hold_rank(Position here) {
    state_.free = at(here).end;
    state_.free_from = here;
  }

  // The receive or UNSHARD that ended last, if the rank was free before.
  Position latest_input(const Action& action, int rank) {
    Duration ready = state_.free;
    Position latest = state_.free_from;
    const auto take = [&](Position input) {
      if (!input.exists() || at(input).end <= ready) return;
      ready = at(input).end;
      latest = input;
    };
    for_each_part(action, [&](const Action& part) {
      take(routes_.receive_for(part, rank));
      const Position gather = gathers_[static_cast<std::size_t>(part.stage)];
      if (gather.rank == rank) take(gather);
    });
    return latest;
  }

  void send(const Action& action, Position here) {
    const Position receive = routes_.receive_of(action);
    if (!receive.exists() || !is_held(here, receive)) at(here).cause = state_.free_from;
    if (at(here).end > at(here).start) hold_rank(here);
  }

  // A receive that has its value when it is posted waited for nothing. One that let its send wait
  // hands on the cause: what held up the post.
  void receive(const Action& action, Position here) {
    const Position send = routes_.send_of(action);
    if (send.exists() && is_held(send, here)) at(send).cause = state_.free_from;
    at(here).cause = send.exists() && at(here).end > at(here).start ? send : state_.free_from;
  }

  // Whether the send waited until its receive was posted.
  bool is_held(Position send, Position receive) {
    const ActionTime& time = at(send);
    if (time.end == time.start) return false;
    const Duration posted = at(receive).start;
    return time.start < posted && posted <= time.end;
  }

  void stream(const Action& action, Position here) {
    at(here).cause = state_.free_from;
    const bool is_gather = action.kind == ActionKind::Unshard;
    if (!is_gather && action.kind != ActionKind::ReduceGrad) return;
    if (state_.stream.exists() && at(state_.stream).end > state_.free) {
      at(here).cause = state_.stream;
    }
    if (is_gather) gathers_[static_cast<std::size_t>(action.stage)] = here;
    state_.stream = here;
  }

  const Schedule& program_;
  const Routes& routes_;
  std::vector<std::vector<ActionTime>>& times_;
  std::vector<Position> gathers_;  // by stage: its last UNSHARD
  RankState state_;
};

}  // namespace

void find_causes(const Schedule& program, const Routes& routes,
                 std::vector<std::vector<ActionTime>>& times) {
  CauseFinder finder(program, routes, times);
  for (int rank = 0; rank < program.num_ranks(); ++rank) finder.find(rank);
}

}  // namespace penstock
