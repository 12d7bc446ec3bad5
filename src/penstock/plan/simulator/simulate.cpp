#include "penstock/plan/simulator/simulate.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/simulator/internal/memory_meter.h"

namespace penstock {
namespace {

constexpr Duration kUnknown{-1};

// An activation or gradient on its way to the stage that needs it.
struct Value {
  Duration computed = kUnknown;
  Duration arrival = kUnknown;
  int send_step = -1;
  int receive_step = -1;
};

// When the gathered parameters of a stage are there, and which UNSHARD brings them.
struct Gather {
  Duration end{};
  int step = -1;
};

struct Wire {
  int receiver;
  Duration free{};
};

struct RankState {
  int next = 0;
  Duration free{};         // the end of the last action that held the rank up
  Position free_from;      // that action
  Duration stream_free{};  // of the gathers and reductions, which run beside
  Position stream_from;
  std::vector<Wire> wires;
  bool is_asleep = false;
  bool has_backwards = false;
  bool has_computed = false;
  bool has_run_backward = false;
  int forwards_left = 0;
};

// What an action waits for besides its rank.
struct Input {
  Duration arrival{};
  Duration computed{};
  Position from;  // the action of this rank that stands for it: a receive, or an UNSHARD
};

class Player {
 public:
  Player(const Schedule& program, const CostModel& costs, Extent extent)
      : program_(program),
        costs_(costs),
        extent_(extent),
        placement_(placement_of(program, extent.num_stages)),
        activations_(extent),
        gradients_(extent),
        gathers_(static_cast<std::size_t>(extent.num_stages)),
        ranks_(program.ranks.size()) {
    result_.ranks.resize(program.ranks.size());
    result_.times.resize(program.ranks.size());
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      result_.times[index(rank)].resize(program.actions_of(rank).size());
      meters_.emplace_back(costs, placement_.stages_of(rank), program.actions_of(rank));
      for (const Action& action : program.actions_of(rank)) count(action, ranks_[index(rank)]);
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

  Simulation finish() {
    Duration work{};
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      RankUsage& usage = result_.ranks[index(rank)];
      usage.last_end =
          std::max({usage.last_end, ranks_[index(rank)].free, ranks_[index(rank)].stream_free});
      usage.peak_activations = meters_[index(rank)].peak_activations();
      usage.peak_bytes = meters_[index(rank)].peak_bytes();
      result_.makespan = std::max(result_.makespan, usage.last_end);
      result_.longest_span = std::max(result_.longest_span, usage.span());
      work += usage.busy;
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      RankUsage& usage = result_.ranks[index(rank)];
      add_idle(usage, IdleCause::Transfer, usage.last_end - ranks_[index(rank)].free);
      add_idle(usage, IdleCause::EndOfStep, result_.makespan - usage.last_end);
    }
    const double share = static_cast<double>(work.count()) / program_.num_ranks();
    const auto bubble = [share](Duration time) {
      return time > Duration::zero() ? 1 - share / static_cast<double>(time.count()) : 0;
    };
    result_.makespan_bubble = bubble(result_.makespan);
    result_.span_bubble = bubble(result_.longest_span);
    return std::move(result_);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static void add_idle(RankUsage& usage, IdleCause cause, Duration time) {
    usage.idle[static_cast<std::size_t>(cause)] += time;
  }
  static void count(const Action& action, RankState& state) {
    for_each_part(action, [&](const Action& part) {
      if (part.kind == ActionKind::Forward) ++state.forwards_left;
      if (makes_input_gradient(part.kind)) state.has_backwards = true;
    });
  }

  ActionTime& time_at(Position position) {
    return result_.times[index(position.rank)][static_cast<std::size_t>(position.step)];
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
    Input latest;
    bool is_known = true;
    for_each_part(action, [&](const Action& part) {
      is_known = is_known && find_input(part, here.rank, latest);
    });
    if (!is_known) return false;

    const Duration start = std::max(state.free, latest.arrival);
    const Duration end = start + costs_.compute_time(action);
    RankUsage& usage = result_.ranks[index(here.rank)];
    const bool waits = latest.arrival > state.free;
    if (waits) explain_wait(state, latest, usage);
    time_at(here) = {start, end, waits ? latest.from : state.free_from};
    if (!state.has_computed) usage.first_start = start;
    usage.busy += end - start;
    state.free = end;
    state.free_from = here;
    state.has_computed = true;
    for_each_part(action, [&](const Action& part) { finish_part(part, end, state); });
    meters_[index(here.rank)].begin(action);
    meters_[index(here.rank)].end(action);
    return true;
  }

  // Takes part's inputs into account. False if one of them has not been sent yet.
  bool find_input(const Action& part, int rank, Input& latest) const {
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
      if (value->arrival > latest.arrival) {
        latest = {value->arrival, value->computed, {rank, value->receive_step}};
      }
    }
    const Gather& gather = gathers_[static_cast<std::size_t>(part.stage)];
    if (gather.end > latest.arrival) latest = {gather.end, Duration::zero(), {rank, gather.step}};
    return true;
  }

  // Splits the wait that now ends: until the value was computed, and from then on.
  static void explain_wait(const RankState& state, const Input& input, RankUsage& usage) {
    const Duration computed = std::clamp(input.computed, state.free, input.arrival);
    IdleCause cause = IdleCause::Imbalance;
    if (!state.has_run_backward && (state.has_backwards || !state.has_computed)) {
      cause = IdleCause::WarmUp;
    } else if (state.forwards_left == 0) {
      cause = IdleCause::CoolDown;
    }
    add_idle(usage, cause, computed - state.free);
    add_idle(usage, IdleCause::Transfer, input.arrival - computed);
  }

  void finish_part(const Action& part, Duration end, RankState& state) {
    if (part.kind == ActionKind::Forward) {
      --state.forwards_left;
      if (part.stage + 1 < extent_.num_stages) {
        activations_.at(part.stage + 1, part.microbatch).computed = end;
      }
    } else if (makes_input_gradient(part.kind)) {
      state.has_run_backward = true;
      if (part.stage > 0) gradients_.at(part.stage - 1, part.microbatch).computed = end;
    }
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

    time_at(here) = {state.free, state.free, state.free_from};
    if (costs_.sends == SendMode::Rendezvous) {
      if (!is_posted) return false;
      const Duration posted = time_at(receive).start;
      if (posted > state.free) {
        add_idle(result_.ranks[index(here.rank)], IdleCause::Transfer, posted - state.free);
        time_at(here).end = posted;
        time_at(here).cause = time_at(receive).cause;  // what held up the post
        state.free = posted;
        state.free_from = here;
      }
    }
    Wire& wire = wire_to(receiver, state);
    wire.free = std::max(state.free, wire.free) + costs_.wire_time(action);
    value.arrival = wire.free + costs_.hop_latency;
    value.send_step = here.step;
    if (is_posted) complete(receive, here, value.arrival);
    wake(receiver);
    return true;
  }

  void receive(const Action& action, Position here, RankState& state) {
    const int from_stage =
        action.kind == ActionKind::ReceiveForward ? action.stage - 1 : action.stage + 1;
    const int sender = placement_.rank_of(from_stage);
    Value& value = value_of(action, action.stage);
    value.receive_step = here.step;
    time_at(here) = {state.free, state.free, state.free_from};
    if (value.arrival != kUnknown) {
      complete(here, {sender, value.send_step}, value.arrival);
    } else if (costs_.sends == SendMode::Rendezvous) {
      wake(sender);
    }
  }

  // A receive ends when its value arrives; only then is it the send that it waited for.
  void complete(Position receive, Position send, Duration arrival) {
    ActionTime& time = time_at(receive);
    if (arrival <= time.start) return;
    time.end = arrival;
    time.cause = send;
  }

  static Wire& wire_to(int receiver, RankState& state) {
    for (Wire& wire : state.wires) {
      if (wire.receiver == receiver) return wire;
    }
    return state.wires.emplace_back(Wire{receiver});
  }

  // Gathers and reductions run one after the other, beside the computation.
  void stream(const Action& action, Position here, RankState& state) {
    const StageCost& cost = costs_.stage(action.stage);
    const Duration start = std::max(state.free, state.stream_free);
    Duration end = start;
    if (action.kind == ActionKind::Unshard) {
      end += cost.unshard;
      gathers_[static_cast<std::size_t>(action.stage)] = {end, here.step};
    } else if (action.kind == ActionKind::ReduceGrad) {
      end += cost.reduce_grad;
    } else {  // releasing parameters takes no time
      time_at(here) = {state.free, state.free, state.free_from};
      return;
    }
    time_at(here) = {start, end, start > state.free ? state.stream_from : state.free_from};
    state.stream_free = end;
    state.stream_from = here;
  }

  const Schedule& program_;
  const CostModel& costs_;
  Extent extent_;
  Placement placement_;
  MicrobatchGrid<Value> activations_;  // by the stage and microbatch that needs them
  MicrobatchGrid<Value> gradients_;
  std::vector<Gather> gathers_;  // by stage
  std::vector<RankState> ranks_;
  std::vector<MemoryMeter> meters_;  // by rank
  std::vector<int> awake_;           // ranks that can go on
  Simulation result_;
};

// The extent of `program`, if its grids can be held: a stray index must not allocate gigabytes.
Extent require_extent(const Schedule& program) {
  const Extent extent = extent_of(program);
  std::size_t num_entries = 0;
  for (const std::vector<Action>& actions : program.ranks) num_entries += actions.size();
  const auto num_cells = static_cast<std::uint64_t>(extent.num_stages) *
                         static_cast<std::uint64_t>(extent.num_microbatches);
  if (num_cells > num_entries) require_valid(program);
  return extent;
}

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  switch (cause) {
    case IdleCause::WarmUp:
      return "warm-up";
    case IdleCause::CoolDown:
      return "cool-down";
    case IdleCause::Imbalance:
      return "imbalance";
    case IdleCause::Transfer:
      return "transfer";
    case IdleCause::EndOfStep:
      return "end of step";
  }
  return "";
}

Simulation simulate(const Schedule& program, const CostModel& costs) {
  const Extent extent = require_extent(program);
  require_costs(costs, extent.num_stages);
  Player player(program, costs, extent);
  if (!player.play()) {
    require_valid(program);
    throw ArgumentError("only a lowered schedule can be simulated; lower() adds what is missing");
  }
  return player.finish();
}

std::vector<Position> critical_path(const Simulation& simulation) {
  Position last;
  Duration end{-1};
  for (int rank = 0; rank < static_cast<int>(simulation.times.size()); ++rank) {
    const std::vector<ActionTime>& times = simulation.times[static_cast<std::size_t>(rank)];
    for (int step = 0; step < static_cast<int>(times.size()); ++step) {
      if (times[static_cast<std::size_t>(step)].end <= end) continue;
      end = times[static_cast<std::size_t>(step)].end;
      last = {rank, step};
    }
  }
  std::vector<Position> path;
  for (Position at = last; at.exists();) {
    path.push_back(at);
    at = simulation.times[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.step)]
             .cause;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<MemoryPoint> memory_curve(const Schedule& program, const Simulation& simulation,
                                      const CostModel& costs, int rank) {
  const Placement placement = placement_of(program, extent_of(program).num_stages);
  MemoryMeter meter(costs, placement.stages_of(rank), program.actions_of(rank));
  std::vector<MemoryPoint> curve = {{Duration::zero(), meter.bytes()}};
  const std::vector<Action>& actions = program.actions_of(rank);
  for (std::size_t step = 0; step < actions.size(); ++step) {
    if (!is_compute(actions[step].kind)) continue;
    const ActionTime& time = simulation.times[static_cast<std::size_t>(rank)][step];
    meter.begin(actions[step]);
    curve.push_back({time.start, meter.bytes()});
    meter.end(actions[step]);
    curve.push_back({time.end, meter.bytes()});
  }
  return curve;
}

}  // namespace penstock
