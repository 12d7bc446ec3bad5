#include "penstock/plan/simulator/timeline.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/plan/simulator/internal/causes.h"
#include "penstock/plan/simulator/internal/memory_meter.h"
#include "penstock/plan/simulator/internal/program_extent.h"
#include "penstock/plan/simulator/internal/routes.h"

namespace penstock {
namespace {

// Where a rank is in its step: what decides between warm-up, cool-down and imbalance.
struct RankProgress {
  bool has_backwards = false;
  bool has_computed = false;
  bool has_run_backward = false;
  int forwards_left = 0;

  explicit RankProgress(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.kind == ActionKind::Forward) ++forwards_left;
        if (makes_input_gradient(part.kind)) has_backwards = true;
      });
    }
  }

  IdleCause cause() const {
    if (!has_run_backward && (has_backwards || !has_computed)) return IdleCause::WarmUp;
    return forwards_left == 0 ? IdleCause::CoolDown : IdleCause::Imbalance;
  }

  void pass(const Action& action) {
    has_computed = true;
    for_each_part(action, [&](const Action& part) {
      if (part.kind == ActionKind::Forward) --forwards_left;
      if (makes_input_gradient(part.kind)) has_run_backward = true;
    });
  }
};

// Until when a rank was held up: by its computation and its sends, and by its gathers and
// reductions, which may run beside.
struct Held {
  Duration free{};
  Duration streams{};
};

// What a computing action waited for between the time when its rank was free, and its start.
Wait explain_compute(const Schedule& program, const Routes& routes, const Timeline& timeline,
                     const ActionTime& time, const Held& held) {
  Wait wait;
  Duration ready = held.free;
  if (time.cause.exists() && timeline.at(time.cause).end > held.free) {
    ready = std::min(timeline.at(time.cause).end, time.start);
    wait.source = time.cause;
    const Action& cause = action_at(program, time.cause);
    if (is_receive(cause.kind)) {
      wait.source = routes.producer_of(cause);
      const Duration computed =
          wait.source.exists() ? timeline.at(wait.source).end : Duration::zero();
      wait.computing = std::clamp(computed, held.free, ready) - held.free;
    }
  }
  ready = std::clamp(held.streams, ready, time.start);
  wait.transfer = ready - held.free - wait.computing;
  wait.overhead = time.start - ready;
  return wait;
}

// Calls visit(step, wait) for each action of `rank`, and returns until when they held it up.
template <typename Visit>
Held for_each_wait(const Schedule& program, const Routes& routes, const Timeline& timeline,
                   int rank, const Visit& visit) {
  const std::vector<Action>& actions = program.actions_of(rank);
  const std::vector<ActionTime>& times = timeline.times[static_cast<std::size_t>(rank)];
  RankProgress progress(actions);
  Held held;
  for (std::size_t step = 0; step < actions.size(); ++step) {
    const Action& action = actions[step];
    const ActionTime& time = times[step];
    Wait wait;
    if (is_compute(action.kind)) {
      if (time.start > held.free) wait = explain_compute(program, routes, timeline, time, held);
      wait.cause = progress.cause();
      progress.pass(action);
      held.free = time.end;
    } else if (is_send(action.kind)) {
      wait = {.transfer = time.end - time.start, .overhead = time.start - held.free};
      if (wait.transfer > Duration::zero()) wait.source = time.cause;
      held.free = time.end;
    } else if (action.kind == ActionKind::Unshard || action.kind == ActionKind::ReduceGrad) {
      held.streams = std::max(held.streams, time.end);
    }
    visit(step, wait);
  }
  return held;
}

void add_idle(RankUsage& usage, IdleCause cause, Duration time) {
  usage.idle[static_cast<std::size_t>(cause)] += time;
}

// All but what needs the other ranks.
RankUsage usage_of(const Schedule& program, const Routes& routes, const Timeline& timeline,
                   const CostModel& costs, int rank) {
  RankUsage usage;
  const std::vector<Action>& actions = program.actions_of(rank);
  const std::vector<ActionTime>& times = timeline.times[static_cast<std::size_t>(rank)];
  MemoryMeter meter(costs, routes.placement().stages_of(rank), actions);
  bool has_computed = false;
  const auto add = [&](std::size_t step, const Wait& wait) {
    usage.last_end = std::max(usage.last_end, times[step].end);
    add_idle(usage, wait.cause, wait.computing);
    add_idle(usage, IdleCause::Transfer, wait.transfer);
    add_idle(usage, IdleCause::Overhead, wait.overhead);
    if (!is_compute(actions[step].kind)) return;
    usage.busy += times[step].end - times[step].start;
    if (!std::exchange(has_computed, true)) usage.first_start = times[step].start;
    meter.begin(actions[step]);
    meter.end(actions[step]);
  };
  const Held held = for_each_wait(program, routes, timeline, rank, add);
  const Duration reduced = std::clamp(held.streams, held.free, usage.last_end);
  add_idle(usage, IdleCause::Transfer, reduced - held.free);
  add_idle(usage, IdleCause::Overhead, usage.last_end - reduced);
  usage.peak_activations = meter.peak_activations();
  usage.peak_bytes = meter.peak_bytes();
  return usage;
}

void add_figures(Timeline& timeline) {
  Duration work{};
  for (const RankUsage& usage : timeline.ranks) {
    timeline.makespan = std::max(timeline.makespan, usage.last_end);
    timeline.longest_span = std::max(timeline.longest_span, usage.span());
    work += usage.busy;
  }
  for (RankUsage& usage : timeline.ranks) {
    add_idle(usage, IdleCause::EndOfStep, timeline.makespan - usage.last_end);
  }
  const double share =
      static_cast<double>(work.count()) / static_cast<double>(timeline.ranks.size());
  const auto bubble = [share](Duration time) {
    return time > Duration::zero() ? 1 - share / static_cast<double>(time.count()) : 0;
  };
  timeline.makespan_bubble = bubble(timeline.makespan);
  timeline.span_bubble = bubble(timeline.longest_span);
}

void require_times(const Schedule& program, const std::vector<std::vector<ActionTime>>& times) {
  if (times.size() != program.ranks.size()) {
    throw ArgumentError(fmt::format("there are times for {} ranks, but the schedule has {}",
                                    times.size(), program.ranks.size()));
  }
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    if (times[rank].size() == program.ranks[rank].size()) continue;
    throw ArgumentError(fmt::format("rank {}: there are times for {} actions, but it has {}", rank,
                                    times[rank].size(), program.ranks[rank].size()));
  }
}

// Makes every action end after it starts, and computing actions and sends start after each other.
void put_in_order(const Schedule& program, std::vector<std::vector<ActionTime>>& times) {
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    Duration free{};
    for (std::size_t step = 0; step < times[rank].size(); ++step) {
      ActionTime& time = times[rank][step];
      const ActionKind kind = program.ranks[rank][step].kind;
      const bool holds_rank = is_compute(kind) || is_send(kind);
      time.start = std::max(time.start, holds_rank ? free : Duration::zero());
      time.end = std::max(time.end, time.start);
      if (holds_rank) free = time.end;
    }
  }
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
    case IdleCause::Overhead:
      return "overhead";
    case IdleCause::EndOfStep:
      return "end of step";
  }
  return "";
}

Timeline make_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                       const CostModel& costs) {
  require_times(program, times);
  const Extent extent = require_extent(program);
  require_costs(costs, program);
  const Routes routes(program, extent);
  Timeline timeline;
  timeline.times = std::move(times);
  put_in_order(program, timeline.times);
  find_causes(program, routes, timeline.times);
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    timeline.ranks.push_back(usage_of(program, routes, timeline, costs, rank));
  }
  add_figures(timeline);
  return timeline;
}

void explain_waits(const Schedule& program, const Timeline& timeline,
                   const std::function<void(int rank, std::span<const Wait> waits)>& visit) {
  const Routes routes(program, require_extent(program));
  std::vector<Wait> waits;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    waits.clear();
    for_each_wait(program, routes, timeline, rank,
                  [&](std::size_t, const Wait& wait) { waits.push_back(wait); });
    visit(rank, waits);
  }
}

std::vector<Position> critical_path(const Timeline& timeline) {
  Position last;
  Duration end{-1};
  for (int rank = 0; rank < static_cast<int>(timeline.times.size()); ++rank) {
    const std::vector<ActionTime>& times = timeline.times[static_cast<std::size_t>(rank)];
    for (int step = 0; step < static_cast<int>(times.size()); ++step) {
      if (times[static_cast<std::size_t>(step)].end <= end) continue;
      end = times[static_cast<std::size_t>(step)].end;
      last = {rank, step};
    }
  }
  std::vector<Position> path;
  for (Position at = last; at.exists(); at = timeline.at(at).cause) path.push_back(at);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<MemoryPoint> memory_curve(const Schedule& program, const Timeline& timeline,
                                      const CostModel& costs, int rank) {
  const Placement placement = placement_of(program, extent_of(program).num_stages);
  MemoryMeter meter(costs, placement.stages_of(rank), program.actions_of(rank));
  std::vector<MemoryPoint> curve = {{Duration::zero(), meter.bytes()}};
  const std::vector<Action>& actions = program.actions_of(rank);
  for (std::size_t step = 0; step < actions.size(); ++step) {
    if (!is_compute(actions[step].kind)) continue;
    const ActionTime& time = timeline.times[static_cast<std::size_t>(rank)][step];
    meter.begin(actions[step]);
    curve.push_back({time.start, meter.bytes()});
    meter.end(actions[step]);
    curve.push_back({time.end, meter.bytes()});
  }
  return curve;
}

}  // namespace penstock
