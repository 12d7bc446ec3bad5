#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {
namespace {

Schedule any_program() {
  const auto families = schedule_families();
  const ScheduleFamily& family =
      families[*rc::gen::inRange<std::size_t>(0, families.size()).as("family")];
  const bool any_ranks = family.num_ranks == ScheduleFamily::kAnyNumber;
  const ScheduleShape shape = {
      .num_ranks = any_ranks ? *rc::gen::inRange(1, 7).as("ranks") : family.num_ranks,
      .num_microbatches = *rc::gen::inRange(1, 13).as("microbatches"),
      .stages_per_rank = family.max_stages_per_rank == ScheduleFamily::kAnyNumber
                             ? *rc::gen::inRange(1, 4).as("stages per rank")
                             : ScheduleShape::kScheduleDefault};
  return lower(family.make(shape));
}

Duration any_time() {
  return Duration(*rc::gen::inRange(0, 1000));
}

CostModel any_costs(int num_stages) {
  CostModel model;
  for (int stage = 0; stage < num_stages; ++stage) {
    model.stages.push_back({.forward = any_time(),
                            .input_backward = any_time(),
                            .weight_backward = any_time(),
                            .full_backward = any_time(),
                            .unshard = any_time(),
                            .reduce_grad = any_time(),
                            .output_bytes = *rc::gen::inRange(0, 1000),
                            .input_gradient_bytes = *rc::gen::inRange(0, 1000)});
  }
  model.hop_latency = any_time();
  model.bytes_per_second = *rc::gen::element(0.0, 1e9, 1e12);
  model.sends = *rc::gen::element(SendMode::Buffered, SendMode::Rendezvous);
  return model;
}

RC_GTEST_PROP(SimulateProperties, IdleTimeAddsUpToTheNanosecond, ()) {
  const Schedule program = any_program();
  const Timeline timeline = simulate(program, any_costs(extent_of(program).num_stages));
  for (const RankUsage& rank : timeline.ranks) {
    for (const Duration idle : rank.idle) RC_ASSERT(idle >= Duration::zero());
    const Duration total = std::accumulate(rank.idle.begin(), rank.idle.end(), rank.busy);
    RC_ASSERT(total == timeline.makespan);
  }
}

RC_GTEST_PROP(SimulateProperties, NoRunBeatsTheWorkOfItsBusiestRank, ()) {
  const Schedule program = any_program();
  const Timeline timeline = simulate(program, any_costs(extent_of(program).num_stages));
  for (const RankUsage& rank : timeline.ranks) {
    RC_ASSERT(rank.busy <= rank.span());
    RC_ASSERT(rank.span() <= timeline.longest_span);
  }
  RC_ASSERT(timeline.longest_span <= timeline.makespan);
}

RC_GTEST_PROP(SimulateProperties, TheCriticalPathHasNoGaps, ()) {
  const Schedule program = any_program();
  const Timeline timeline = simulate(program, any_costs(extent_of(program).num_stages));
  const std::vector<Position> path = critical_path(timeline);
  RC_ASSERT(timeline.at(path.front()).start == Duration::zero());
  RC_ASSERT(timeline.at(path.back()).end == timeline.makespan);
  for (std::size_t i = 1; i < path.size(); ++i) {
    const ActionTime& before = timeline.at(path[i - 1]);
    const ActionTime& after = timeline.at(path[i]);
    // An action starts when its cause ends; a transfer ends some time after it was sent, and a
    // held-up send ends when the receive it waited for was posted.
    const bool is_transfer = !is_compute(action_at(program, path[i]).kind);
    RC_ASSERT((is_transfer ? after.end >= before.start : after.start == before.end));
  }
}

RC_GTEST_PROP(SimulateProperties, AgreesWithTheProverOnLiveActivations, ()) {
  const Schedule program = any_program();
  const CheckReport report = check(program);
  const Timeline timeline = simulate(program, CostModel::uniform());
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const auto num_stages = static_cast<double>(report.placement.stages_of(rank).size());
    const double peak = timeline.ranks[static_cast<std::size_t>(rank)].peak_activations;
    RC_ASSERT(peak * num_stages == report.peak_activations[static_cast<std::size_t>(rank)]);
  }
}

RC_GTEST_PROP(SimulateProperties, WaitingForReceivesNeverMakesAStepShorter, ()) {
  const Schedule program = any_program();
  CostModel model = any_costs(extent_of(program).num_stages);
  model.sends = SendMode::Buffered;
  const Duration buffered = simulate(program, model).makespan;
  model.sends = SendMode::Rendezvous;
  RC_ASSERT(simulate(program, model).makespan >= buffered);
}

// The times of a run as ranks with clocks of their own might have read them.
std::vector<std::vector<ActionTime>> with_noise(std::vector<std::vector<ActionTime>> times) {
  for (std::vector<ActionTime>& rank : times) {
    const Duration skew(*rc::gen::inRange(-300, 300));
    for (ActionTime& time : rank) {
      time.start += skew + Duration(*rc::gen::inRange(-50, 50));
      time.end += skew + Duration(*rc::gen::inRange(-50, 200));
      time.cause = {};
    }
  }
  return times;
}

RC_GTEST_PROP(TimelineProperties, NoisyTimesAddUpToTheNanosecond, ()) {
  const Schedule program = any_program();
  const CostModel costs = any_costs(extent_of(program).num_stages);
  const Timeline timeline =
      make_timeline(program, with_noise(simulate(program, costs).times), costs);
  for (const RankUsage& rank : timeline.ranks) {
    for (const Duration idle : rank.idle) RC_ASSERT(idle >= Duration::zero());
    const Duration total = std::accumulate(rank.idle.begin(), rank.idle.end(), rank.busy);
    RC_ASSERT(total == timeline.makespan);
  }
  const std::vector<Position> path = critical_path(timeline);
  RC_ASSERT(timeline.at(path.back()).end == timeline.makespan);
  RC_ASSERT(path.size() <= num_actions(program));
}

RC_GTEST_PROP(TimelineProperties, ASimulationHasNoOverhead, ()) {
  const Schedule program = any_program();
  const Timeline timeline = simulate(program, any_costs(extent_of(program).num_stages));
  for (const RankUsage& rank : timeline.ranks) {
    RC_ASSERT(rank.idle_for(IdleCause::Overhead) == Duration::zero());
  }
}

}  // namespace
}  // namespace penstock
