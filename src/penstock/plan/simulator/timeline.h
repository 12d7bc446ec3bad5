#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// When an action of a program ran, counted from the start of the step. A send ends when it lets
// its rank go on, a receive when its value has arrived.
struct ActionTime {
  Duration start{};
  Duration end{};
  // The action, of this rank or another, that this one waited for last; absent for what starts at
  // once. Following it from action to action leads back to the start of the step. make_timeline()
  // finds it.
  Position cause = {};
};

// Why a rank was idle. Every idle nanosecond has exactly one of these causes.
enum class IdleCause {
  WarmUp,     // before the rank's first backward: a value was not computed yet
  CoolDown,   // after the rank's last forward: a value was not computed yet
  Imbalance,  // in between: a value was not computed yet
  Transfer,   // a value was on its way, or being sent; parameters were still being gathered
  Overhead,   // nothing was waited for: the runtime's own time; none in a simulation
  EndOfStep,  // the rank was finished, others were not
};
constexpr int kNumIdleCauses = 6;
std::string_view idle_cause_name(IdleCause cause);

// What one rank did with its time and memory.
struct RankUsage {
  Duration busy{};
  Duration first_start{};                       // of its first computing action
  Duration last_end{};                          // of its last action
  std::array<Duration, kNumIdleCauses> idle{};  // by IdleCause; with `busy` it adds up to makespan

  // One activation is one microbatch on all stages of the rank, from F to B or W.
  double peak_activations = 0;
  std::int64_t peak_bytes = 0;

  Duration span() const { return last_end - first_start; }
  Duration idle_for(IdleCause cause) const { return idle[static_cast<std::size_t>(cause)]; }
};

// How a step of a program went, simulated or measured.
struct Timeline {
  std::vector<std::vector<ActionTime>> times;  // as Schedule::ranks of the program
  std::vector<RankUsage> ranks;
  Duration makespan{};
  Duration longest_span{};  // of a single rank

  // The share of the ranks' time that is not work: within the makespan, which is what a step with
  // a barrier at its end pays, and within the longest span of a rank, which is what remains when
  // every rank goes on to the next step as soon as it is done.
  double makespan_bubble = 0;
  double span_bubble = 0;

  const ActionTime& at(Position position) const {
    return times[static_cast<std::size_t>(position.rank)][static_cast<std::size_t>(position.step)];
  }
};

// The timeline of a lowered, valid program whose actions ran at `times`. The sizes in `costs` give
// the memory; its times do not matter. Linear in the number of actions.
//
// `times` may be clock readings, and the clocks of two ranks may differ a little. Where an action
// starts before the step or before its rank is free, it is moved up to there; a value that seems to
// arrive before it was computed, or after it was used, counts as if it had arrived just then.
//
// Throws ArgumentError if `times` or `costs` do not fit `program`.
Timeline make_timeline(const Schedule& program, std::vector<std::vector<ActionTime>> times,
                       const CostModel& costs);

// Why an action did not start, or a send did not end, when its rank was free for it.
struct Wait {
  Duration computing{};  // the value was not computed yet; counts as `cause`
  Duration transfer{};   // it was on its way, or the send took this long
  Duration overhead{};   // nothing was waited for
  IdleCause cause = IdleCause::Imbalance;
  Position source = {};  // the action that made the value, or the one that stood in the way

  Duration time() const { return computing + transfer + overhead; }
};

// Splits the idle time of a timeline action by action: calls `visit` for each rank in turn, with
// one wait per action. What is idle after the last action of a rank is not among them.
void explain_waits(const Schedule& program, const Timeline& timeline,
                   const std::function<void(int rank, std::span<const Wait> waits)>& visit);

// The chain of actions that determines the makespan, first to last.
std::vector<Position> critical_path(const Timeline& timeline);

// Memory of a rank as it changes over time: `bytes` from `time` on.
struct MemoryPoint {
  Duration time{};
  std::int64_t bytes = 0;
};
std::vector<MemoryPoint> memory_curve(const Schedule& program, const Timeline& timeline,
                                      const CostModel& costs, int rank);

}  // namespace penstock
