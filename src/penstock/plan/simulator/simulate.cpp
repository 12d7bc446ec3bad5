#include "penstock/plan/simulator/simulate.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/simulator/internal/program_extent.h"

namespace penstock {
namespace {

constexpr Duration kUnknown{-1};

// An activation or gradient on its way to the stage that needs it.
struct Value {
  Duration arrival = kUnknown;
  int receive_step = -1;
};

struct Wire {
  int receiver;
  Duration free{};
};

struct RankState {
  int next = 0;
  Duration free{};         // the end of the last action that held the rank up
  Duration stream_free{};  // of the gathers and reductions, which run beside
  std::vector<Wire> wires;
  bool is_asleep = false;
};

// Finds out when each action runs; what follows from that is up to make_timeline().
class Player {
 public:
  Player(const Schedule& program, const CostModel& costs, Extent extent)
      : program_(program),
        costs_(costs),
        extent_(extent),
        placement_(placement_of(program, extent.num_stages)),
        activations_(extent),
        gradients_(extent),
        gathered_(static_cast<std::size_t>(extent.num_stages)),
        ranks_(program.ranks.size()),
        times_(program.ranks.size()) {
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      times_[index(rank)].resize(program.actions_of(rank).size());
    }
  }

  // False if some rank waits for something that never comes.
  bool play() {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) awake_.push_back(rank);
    std::vector<int> turn;
    while (!awake_.empty()) {
      std::swap(turn, awake_);
      awake_.clear();
      for (const int rank : turn) advance(rank);
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      if (ranks_[index(rank)].next < static_cast<int>(program_.actions_of(rank).size()))
        return false;
    }
    return true;
  }

  std::vector<std::vector<ActionTime>> take_times() { return std::move(times_); }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  ActionTime& time_at(Position position) {
    return times_[index(position.rank)][static_cast<std::size_t>(position.step)];
  }

  void advance(int rank) {
    RankState& state = ranks_[index(rank)];
    const std::vector<Action>& actions = program_.actions_of(rank);
    while (state.next < static_cast<int>(actions.size())) {
      const Action& action = actions[static_cast<std::size_t>(state.next)];
      if (!run(action, {rank, state.next}, state)) {
        state.is_asleep = true;
        return;
      }
      ++state.next;
    }
  }

  void wake(int rank) {
    if (!std::exchange(ranks_[index(rank)].is_asleep, false)) return;
    awake_.push_back(rank);
  }

  // False if the action has to wait for a rank that has not got far enough yet.
  bool run(const Action& action, Position here, RankState& state) {
    if (is_compute(action.kind)) return compute(action, here, state);
    if (is_send(action.kind)) return send(action, here, state);
    if (is_receive(action.kind)) {
      receive(action, here, state);
    } else {
      stream(action, here, state);
    }
    return true;
  }

  bool compute(const Action& action, Position here, RankState& state) {
    Duration start = state.free;
    bool is_known = true;
    for_each_part(action, [&](const Action& part) {
      is_known = is_known && wait_for_inputs(part, here.rank, start);
    });
    if (!is_known) return false;
    state.free = start + costs_.compute_time(action);
    time_at(here) = {start, state.free};
    return true;
  }

  // Moves `start` to when part's inputs are there. False if one of them has not been sent yet.
  bool wait_for_inputs(const Action& part, int rank, Duration& start) const {
    const Value* value = nullptr;
    if (part.kind == ActionKind::Forward && part.stage > 0) {
      if (placement_.rank_of(part.stage - 1) != rank) {
        value = &activations_.at(part.stage, part.microbatch);
      }
    } else if (makes_input_gradient(part.kind) && part.stage + 1 < extent_.num_stages) {
      if (placement_.rank_of(part.stage + 1) != rank) {
        value = &gradients_.at(part.stage, part.microbatch);
      }
    }
    if (value != nullptr) {
      if (value->arrival == kUnknown) return false;
      start = std::max(start, value->arrival);
    }
    start = std::max(start, gathered_[static_cast<std::size_t>(part.stage)]);
    return true;
  }

  Value& value_of(const Action& transfer, int to_stage) {
    const bool is_activation =
        transfer.kind == ActionKind::SendForward || transfer.kind == ActionKind::ReceiveForward;
    return (is_activation ? activations_ : gradients_).at(to_stage, transfer.microbatch);
  }

  bool send(const Action& action, Position here, RankState& state) {
    const int to_stage =
        action.kind == ActionKind::SendForward ? action.stage + 1 : action.stage - 1;
    const int receiver = placement_.rank_of(to_stage);
    Value& value = value_of(action, to_stage);
    const Position receive{receiver, value.receive_step};
    const bool is_posted = value.receive_step >= 0;

    const Duration start = state.free;
    if (costs_.sends == SendMode::Rendezvous) {
      if (!is_posted) return false;
      state.free = std::max(state.free, time_at(receive).start);
    }
    time_at(here) = {start, state.free};
    Wire& wire = wire_to(receiver, state);
    wire.free = std::max(state.free, wire.free) + costs_.wire_time(action);
    value.arrival = wire.free + costs_.hop_latency;
    if (is_posted) complete(receive, value.arrival);
    wake(receiver);
    return true;
  }

  void receive(const Action& action, Position here, RankState& state) {
    Value& value = value_of(action, action.stage);
    value.receive_step = here.step;
    time_at(here) = {state.free, state.free};
    if (value.arrival != kUnknown) {
      complete(here, value.arrival);
    } else if (costs_.sends == SendMode::Rendezvous) {
      wake(placement_.rank_of(action.kind == ActionKind::ReceiveForward ? action.stage - 1
                                                                        : action.stage + 1));
    }
  }

  // A receive ends when its value arrives, or at once if it was there before.
  void complete(Position receive, Duration arrival) {
    ActionTime& time = time_at(receive);
    time.end = std::max(time.end, arrival);
  }

  static Wire& wire_to(int receiver, RankState& state) {
    for (Wire& wire : state.wires) {
      if (wire.receiver == receiver) return wire;
    }
    return state.wires.emplace_back(Wire{receiver});
  }

  // Gathers and reductions run one after the other, beside the computation.
  void stream(const Action& action, Position here, RankState& state) {
    const bool is_gather = action.kind == ActionKind::Unshard;
    if (!is_gather && action.kind != ActionKind::ReduceGrad) {  // releasing takes no time
      time_at(here) = {state.free, state.free};
      return;
    }
    const StageCost& cost = costs_.stage(action.stage);
    const Duration start = std::max(state.free, state.stream_free);
    state.stream_free = start + (is_gather ? cost.unshard : cost.reduce_grad);
    if (is_gather) gathered_[static_cast<std::size_t>(action.stage)] = state.stream_free;
    time_at(here) = {start, state.stream_free};
  }

  const Schedule& program_;
  const CostModel& costs_;
  Extent extent_;
  Placement placement_;
  MicrobatchGrid<Value> activations_;  // by the stage and microbatch that needs them
  MicrobatchGrid<Value> gradients_;
  std::vector<Duration> gathered_;  // by stage: when its parameters are there
  std::vector<RankState> ranks_;
  std::vector<int> awake_;  // ranks that can go on
  std::vector<std::vector<ActionTime>> times_;
};

// A function of its own, so that what the player holds is gone before the timeline is made.
std::vector<std::vector<ActionTime>> play(const Schedule& program, const CostModel& costs) {
  const Extent extent = require_extent(program);
  require_costs(costs, program);
  Player player(program, costs, extent);
  if (!player.play()) {
    require_valid(program);
    throw ArgumentError("only a lowered schedule can be simulated; lower() adds what is missing");
  }
  return player.take_times();
}

}  // namespace

Timeline simulate(const Schedule& program, const CostModel& costs) {
  return make_timeline(program, play(program, costs), costs);
}

}  // namespace penstock
