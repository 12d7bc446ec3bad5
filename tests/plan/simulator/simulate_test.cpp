#include "penstock/plan/simulator/simulate.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"

namespace penstock {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kF{10};
constexpr Duration kI{20};
constexpr Duration kW{30};

CostModel costs(Duration hop = {}) {
  return CostModel::uniform(
      {.forward = kF, .input_backward = kI, .weight_backward = kW, .hop = hop});
}

Schedule one_microbatch_on_two_ranks() {
  return lower(testing::parse_listing("0: 0F0 0B0\n1: 1F0 1B0\n"), {.sharding = false});
}

// "0F0 0..10": an action and when it ran, in nanoseconds.
std::vector<std::string> story(const Schedule& program, const Timeline& timeline, int rank) {
  std::vector<std::string> lines;
  for (std::size_t step = 0; step < program.actions_of(rank).size(); ++step) {
    const ActionTime& time = timeline.times[static_cast<std::size_t>(rank)][step];
    lines.push_back(to_string(program.actions_of(rank)[step]) + " " +
                    std::to_string(time.start.count()) + ".." + std::to_string(time.end.count()));
  }
  return lines;
}

std::vector<std::string> path(const Schedule& program, const Timeline& timeline) {
  std::vector<std::string> actions;
  for (const Position at : critical_path(timeline)) {
    actions.push_back(to_string(action_at(program, at)));
  }
  return actions;
}

TEST(Simulate, PlaysEachActionWhenItsRankAndItsInputAllow) {
  const Schedule program = one_microbatch_on_two_ranks();
  const Timeline timeline = simulate(program, costs(Duration{7}));
  EXPECT_THAT(story(program, timeline, 0),
              ElementsAre("0F0 0..10", "0SEND_F0 10..10", "0RECV_B0 10..84", "0B0 84..134",
                          "0REDUCE_GRAD 134..134"));
  EXPECT_THAT(story(program, timeline, 1), ElementsAre("1RECV_F0 0..17", "1F0 17..27", "1B0 27..77",
                                                       "1SEND_B0 77..77", "1REDUCE_GRAD 77..77"));
  EXPECT_EQ(timeline.makespan, Duration{134});
  EXPECT_EQ(timeline.longest_span, Duration{134});
  EXPECT_DOUBLE_EQ(timeline.makespan_bubble, 1 - 60.0 / 134);
}

TEST(Simulate, GivesEveryIdleNanosecondACause) {
  const Timeline timeline = simulate(one_microbatch_on_two_ranks(), costs(Duration{7}));
  const RankUsage& first = timeline.ranks[0];
  EXPECT_EQ(first.busy, Duration{60});
  EXPECT_EQ(first.idle_for(IdleCause::WarmUp), Duration{67});  // until 1B0 ends
  EXPECT_EQ(first.idle_for(IdleCause::Transfer), Duration{7});
  EXPECT_EQ(first.idle_for(IdleCause::EndOfStep), Duration{0});
  const RankUsage& second = timeline.ranks[1];
  EXPECT_EQ(second.idle_for(IdleCause::WarmUp), Duration{10});
  EXPECT_EQ(second.idle_for(IdleCause::Transfer), Duration{7});
  EXPECT_EQ(second.idle_for(IdleCause::EndOfStep), Duration{57});
}

TEST(Simulate, TellsCoolDownFromImbalance) {
  // Stage 1 is slow: rank 0 waits for it in the steady state, and again when forwards have run out.
  CostModel model;
  model.stages = {{.forward = kF, .full_backward = kF}, {.forward = kF, .full_backward = 5 * kF}};
  const Schedule program =
      lower(make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 4}), {.sharding = false});
  const RankUsage rank = simulate(program, model).ranks[0];
  EXPECT_EQ(rank.idle_for(IdleCause::WarmUp), Duration{50});
  EXPECT_EQ(rank.idle_for(IdleCause::Imbalance), Duration{40});
  EXPECT_EQ(rank.idle_for(IdleCause::CoolDown), Duration{90});
}

TEST(Simulate, FollowsTheCriticalPathAcrossRanks) {
  const Schedule program = one_microbatch_on_two_ranks();
  EXPECT_THAT(
      path(program, simulate(program, costs(Duration{7}))),
      ElementsAre("0F0", "0SEND_F0", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "0RECV_B0", "0B0"));
}

TEST(Simulate, HoldsARendezvousSendUntilItsReceiveIsPosted) {
  const Schedule program = testing::parse_listing(
      "0: 0F0 0SEND_F0 0F1 0SEND_F1\n"
      "1: 1RECV_F0 1F0 1RECV_F1 1F1\n");
  CostModel model = costs();
  model.stages.push_back(model.stages.front());
  model.stages[1].forward = Duration{50};
  EXPECT_THAT(story(program, simulate(program, model), 0),
              ElementsAre("0F0 0..10", "0SEND_F0 10..10", "0F1 10..20", "0SEND_F1 20..20"));
  model.sends = SendMode::Rendezvous;
  const Timeline held = simulate(program, model);
  EXPECT_THAT(story(program, held, 0),
              ElementsAre("0F0 0..10", "0SEND_F0 10..10", "0F1 10..20", "0SEND_F1 20..60"));
  EXPECT_EQ(held.ranks[0].idle_for(IdleCause::Transfer), Duration{40});
}

TEST(Simulate, SendsOneMessageAtATimeOverAWire) {
  CostModel model = costs(Duration{5});
  model.stages.front().output_bytes = 100;
  model.bytes_per_second = 5e9;  // 20 ns per message
  const Schedule program = testing::parse_listing(
      "0: 0F0 0SEND_F0 0F1 0SEND_F1\n"
      "1: 1RECV_F0 1RECV_F1 1F0 1F1\n");
  EXPECT_THAT(story(program, simulate(program, model), 1),
              ElementsAre("1RECV_F0 0..35", "1RECV_F1 0..55", "1F0 35..45", "1F1 55..65"));
}

TEST(Simulate, GathersAndReducesBesideTheComputation) {
  CostModel model = costs();
  model.stages.front().unshard = Duration{100};
  model.stages.front().reduce_grad = Duration{1000};
  const Schedule program = lower(make_schedule("GPipe", {.num_ranks = 1, .num_microbatches = 2}));
  const Timeline timeline = simulate(program, model);
  EXPECT_THAT(story(program, timeline, 0),
              ElementsAre("0UNSHARD 0..100", "0F0 100..110", "0F1 110..120", "0B0 120..170",
                          "0B1 170..220", "0REDUCE_GRAD 220..1220", "0RESHARD 220..220"));
  EXPECT_EQ(timeline.ranks[0].idle_for(IdleCause::Transfer), Duration{1100});
}

TEST(Simulate, MeasuresAnOverlappedPairAsOneUnit) {
  CostModel model = costs();
  model.overlap_factor = 0.5;
  const Schedule program = testing::parse_listing("0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1");
  const Timeline timeline = simulate(program, model);
  EXPECT_EQ(timeline.makespan, kF + (kF + kI + kW) / 2 + kI + kW);
}

TEST(Simulate, CountsBytesFromForwardToWeightGradient) {
  CostModel model = costs();
  model.stages.front().activation_bytes = 100;
  model.stages.front().weight_gradient_bytes = 30;
  model.stages.front().parameter_bytes = 1000;
  const Schedule program = testing::parse_listing("0: 0F0 0F1 0I0 0W0 0B1");
  const Timeline timeline = simulate(program, model);
  EXPECT_EQ(timeline.ranks[0].peak_bytes, 1200);
  EXPECT_DOUBLE_EQ(timeline.ranks[0].peak_activations, 2);
  std::vector<std::pair<long, long>> curve;
  for (const MemoryPoint& point : memory_curve(program, timeline, model, 0)) {
    curve.emplace_back(point.time.count(), point.bytes);
  }
  using Point = std::pair<long, long>;
  EXPECT_THAT(curve, ElementsAre(Point(0, 1000), Point(0, 1100), Point(10, 1100), Point(10, 1200),
                                 Point(20, 1200), Point(20, 1200), Point(40, 1130), Point(40, 1130),
                                 Point(70, 1100), Point(70, 1100), Point(120, 1000)));
}

TEST(Simulate, KeepsNoActivationsWithoutABackward) {
  const Schedule program =
      lower(make_schedule("ForwardOnly", {.num_ranks = 3, .num_microbatches = 9}));
  for (const RankUsage& rank : simulate(program, costs()).ranks) {
    EXPECT_DOUBLE_EQ(rank.peak_activations, 1);
  }
}

TEST(Simulate, RefusesWhatIsNotLowered) {
  const Schedule order = make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 2});
  try {
    simulate(order, costs());
    FAIL() << "simulated a compute order";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "only a lowered schedule can be simulated; lower() adds what is missing");
  }
}

TEST(Simulate, RefusesAProgramThatDeadlocks) {
  const Schedule program = testing::parse_listing(
      "0: 0RECV_B0 0F0 0B0 0SEND_F0\n"
      "1: 1RECV_F0 1F0 1B0 1SEND_B0\n");
  EXPECT_THROW(simulate(program, costs()), ScheduleError);
}

TEST(Simulate, TakesAValueThatNoActionMakesAsTransfer) {
  const Schedule program = testing::parse_listing("0: 0SEND_F0\n1: 1RECV_F0 1F0\n");
  const Timeline timeline = simulate(program, costs(Duration{7}));
  EXPECT_EQ(timeline.ranks[1].idle_for(IdleCause::Transfer), Duration{7});
}

TEST(Simulate, RefusesCostsThatDoNotFit) {
  const Schedule program = one_microbatch_on_two_ranks();
  CostModel model = costs();
  model.stages.resize(3, model.stages.front());
  try {
    simulate(program, model);
    FAIL() << "took costs for three stages";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "the costs are for 3 stages, but the schedule has 2");
  }
  model = costs();
  model.stages.front().weight_backward = Duration{-1};
  try {
    simulate(program, model);
    FAIL() << "took a negative time";
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("stage 0: the time of W is -1"));
  }
}

TEST(Simulate, RefusesCostsThatCannotBeCounted) {
  const Schedule program =
      one_microbatch_on_two_ranks();  // 10 actions: 20 terms, up to 4.5e17 each
  const auto refusal_of = [&](const auto& change) -> std::string {
    CostModel model = costs();
    change(model);
    try {
      simulate(program, model);
      return "nothing was thrown";
    } catch (const ArgumentError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal_of([](CostModel& model) {
              model.stages.resize(1);
              model.stages[0].forward = Duration::max();
            }),
            "stage 0: the time of F is 9.22337e+12 ms; with as many actions as this schedule has, "
            "at most 4.5e+11 ms can be counted");
  EXPECT_THAT(refusal_of([](CostModel& model) {
                model.stages[0].activation_bytes = std::numeric_limits<std::int64_t>::max();
              }),
              HasSubstr("stage 0: the size of an activation is 9.22337e+18 bytes; with"));
  EXPECT_THAT(refusal_of([](CostModel& model) {
                model.stages[0].output_bytes = 1;
                model.bytes_per_second = 1e-12;
              }),
              HasSubstr("stage 0: at 1e-12 bytes/s, a message takes 1e+15 ms; with"));
  EXPECT_THAT(refusal_of([](CostModel& model) { model.overlap_factor = 1e300; }),
              HasSubstr("with a factor of 1e+300, an overlapped action takes up to"));
  EXPECT_THAT(refusal_of([](CostModel& model) { model.hop_latency = Duration::max(); }),
              HasSubstr("the latency of a hop is 9.22337e+12 ms; with"));
  EXPECT_EQ(refusal_of([](CostModel& model) {
              for (StageCost& cost : model.stages) cost.forward = std::chrono::hours(24 * 365);
            }),
            "nothing was thrown");
}

using Times = std::vector<std::vector<ActionTime>>;

ActionTime ran(long start, long end) {
  return {.start = Duration{start}, .end = Duration{end}};
}

// Clock readings of one_microbatch_on_two_ranks().
Times measured_times() {
  return {
      {ran(3, 20), ran(22, 25), ran(26, 95), ran(100, 150), ran(151, 160)},  // F SEND RECV B REDUCE
      {ran(1, 30), ran(34, 50), ran(50, 80), ran(85, 90), ran(92, 99)},      // RECV F B SEND REDUCE
  };
}

TEST(MakeTimeline, ExplainsTheGapsOfAMeasuredRun) {
  const Timeline timeline = make_timeline(one_microbatch_on_two_ranks(), measured_times(), costs());
  const RankUsage& first = timeline.ranks[0];
  EXPECT_EQ(first.busy, Duration{17 + 50});
  EXPECT_EQ(first.idle_for(IdleCause::WarmUp), Duration{80 - 25});        // until 1B0 ends
  EXPECT_EQ(first.idle_for(IdleCause::Transfer), Duration{3 + 15 + 10});  // send, value, reduce
  EXPECT_EQ(first.idle_for(IdleCause::Overhead), Duration{3 + 2 + 5});    // until F, SEND, B
  EXPECT_EQ(first.idle_for(IdleCause::EndOfStep), Duration{0});
  const RankUsage& second = timeline.ranks[1];
  EXPECT_EQ(second.busy, Duration{16 + 30});
  EXPECT_EQ(second.idle_for(IdleCause::WarmUp), Duration{20});            // until 0F0 ends
  EXPECT_EQ(second.idle_for(IdleCause::Transfer), Duration{10 + 5 + 9});  // value, send, reduce
  EXPECT_EQ(second.idle_for(IdleCause::Overhead), Duration{4 + 5});       // until F, SEND
  EXPECT_EQ(second.idle_for(IdleCause::EndOfStep), Duration{160 - 99});
}

TEST(MakeTimeline, FindsTheCriticalPathOfAMeasuredRun) {
  const Schedule program = one_microbatch_on_two_ranks();
  EXPECT_THAT(path(program, make_timeline(program, measured_times(), costs())),
              ElementsAre("0F0", "0SEND_F0", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "0RECV_B0",
                          "0B0", "0REDUCE_GRAD"));
}

TEST(MakeTimeline, PutsReadingsOfDifferentClocksInOrder) {
  const Schedule program = one_microbatch_on_two_ranks();
  Times times = measured_times();
  times[0][0] = ran(-2, 24);   // before the step, and into its own send
  times[1][0] = ran(1, 19);    // arrives before it is sent
  times[0][2] = ran(26, 120);  // arrives after it is used
  const Timeline timeline = make_timeline(program, times, costs());
  EXPECT_THAT(story(program, timeline, 0),
              ElementsAre("0F0 0..24", "0SEND_F0 24..25", "0RECV_B0 26..120", "0B0 100..150",
                          "0REDUCE_GRAD 151..160"));
  EXPECT_EQ(timeline.ranks[0].idle_for(IdleCause::Transfer), Duration{1 + 20 + 10});
  EXPECT_EQ(timeline.ranks[1].idle_for(IdleCause::WarmUp), Duration{19});
  EXPECT_EQ(timeline.ranks[1].idle_for(IdleCause::Overhead), Duration{15 + 5});
}

TEST(MakeTimeline, RefusesTimesOfAnotherProgram) {
  const Schedule program = one_microbatch_on_two_ranks();
  const auto message_for = [&](const Times& times) -> std::string {
    try {
      make_timeline(program, times, costs());
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_for({{}}), "there are times for 1 ranks, but the schedule has 2");
  Times times = measured_times();
  times[1].pop_back();
  EXPECT_EQ(message_for(times), "rank 1: there are times for 4 actions, but it has 5");
}

}  // namespace
}  // namespace penstock
