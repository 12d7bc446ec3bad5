#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/simulator/simulate.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/measure/timeline_recorder.h"
#include "penstock/run/pipeline/schedules.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

struct Recorded {
  std::shared_ptr<TimelineRecorder> timeline = std::make_shared<TimelineRecorder>();
  std::shared_ptr<ProfileRecorder> profile = std::make_shared<ProfileRecorder>();
  Blocks blocks;
  std::unique_ptr<PipelineSchedule> pipeline;

  Recorded(std::string_view schedule, int num_steps, const TestModel& model = mlp_model(),
           int num_ranks = 2) {
    const Schedule order = make_schedule(schedule, {.num_ranks = num_ranks, .num_microbatches = 6});
    blocks = model.make(extent_of(order).num_stages);
    pipeline = std::make_unique<PipelineSchedule>(
        make_stages(blocks), order,
        ScheduleOptions{
            .num_microbatches = 6, .loss = model.loss, .observers = {timeline, profile}});
    for (int step = 0; step < num_steps; ++step) {
      pipeline->step({model.make_inputs(12)}, {.target = model.make_targets(12)});
    }
  }
};

TEST(TimelineRecorder, AccountsForTheWholeStep) {
  for (const char* name : {"1F1B", "ZBVZeroBubble", "DualPipeV"}) {
    SCOPED_TRACE(name);
    const Recorded run(name, 3, gpt_model());
    const Timeline timeline =
        run.timeline->timeline(run.profile->profile(run.pipeline->stages()).costs);
    for (const RankUsage& rank : timeline.ranks) {
      const Duration idle = std::accumulate(rank.idle.begin(), rank.idle.end(), Duration::zero());
      EXPECT_EQ(rank.busy + idle, timeline.makespan);
      EXPECT_GT(rank.busy, Duration::zero());
    }
    EXPECT_LE(timeline.makespan, run.timeline->wall_time());
  }
}

// A ledger that leaves time out would be short of the wall time in every step; a step that the
// system has interrupted, between the last action and the clock out here, is only one of them.
TEST(TimelineRecorder, SumsToTheWallTimeWithinOnePercent) {
  constexpr int kWidth = 320;
  constexpr int kMicrobatches = 4;
  constexpr int kMostSteps = 50;
  const torch::Tensor weight = torch::eye(kWidth).requires_grad_();
  const auto work = [weight](const torch::Tensor& input) {
    return input.mm(weight).mm(weight).mm(weight);
  };
  const auto timeline = std::make_shared<TimelineRecorder>();
  PipelineSchedule pipeline(
      make_stages(work, work),
      make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = kMicrobatches}),
      {.num_microbatches = kMicrobatches, .loss = sum_of_products, .observers = {timeline}});
  const torch::Tensor batch = torch::ones({kMicrobatches * kWidth, kWidth});

  double best_share = 0;
  for (int step = 0; step < kMostSteps && best_share < 0.99; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    pipeline.step({batch}, {.target = batch, .return_outputs = false});
    const Duration wall_time = std::chrono::steady_clock::now() - begin;
    for (const RankUsage& rank : timeline->timeline(CostModel::uniform()).ranks) {
      const Duration ledger = std::accumulate(rank.idle.begin(), rank.idle.end(), rank.busy);
      ASSERT_LE(ledger, timeline->wall_time());
      ASSERT_LE(ledger, wall_time);
      best_share = std::max(best_share, std::chrono::duration<double>(ledger) / wall_time);
    }
  }
  EXPECT_GE(best_share, 0.99);
}

TEST(TimelineRecorder, KeepsTheOrderOfEachRank) {
  const Recorded run("ZBVZeroBubble", 2);
  const Timeline timeline = run.timeline->timeline(CostModel::uniform());
  ASSERT_EQ(timeline.times.size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    Duration before{};
    const auto& times = timeline.times[static_cast<std::size_t>(rank)];
    ASSERT_EQ(times.size(), run.timeline->program().actions_of(rank).size());
    for (std::size_t step = 0; step < times.size(); ++step) {
      EXPECT_GE(times[step].start, before) << "rank " << rank << ", step " << step;
      EXPECT_GE(times[step].end, times[step].start);
      before = times[step].start;
    }
  }
}

TEST(TimelineRecorder, KeepsTheLastStepThatFinished) {
  bool is_broken = true;
  const auto fragile = [&is_broken](const torch::Tensor& input) {
    if (is_broken) throw std::runtime_error("broken");
    return input * 2;
  };
  const auto timeline = std::make_shared<TimelineRecorder>();
  PipelineSchedule pipeline(make_stages(fragile),
                            make_schedule("1F1B", {.num_ranks = 1, .num_microbatches = 2}),
                            {.num_microbatches = 2, .observers = {timeline}});
  const auto evaluate = [&] { pipeline.eval({torch::ones({2})}); };
  EXPECT_ANY_THROW(evaluate());
  EXPECT_THROW(timeline->timeline(CostModel::uniform()), ArgumentError) << "nothing has finished";
  is_broken = false;
  evaluate();
  const StepClock::time_point begin = timeline->begin();
  const Duration wall_time = timeline->wall_time();
  is_broken = true;
  EXPECT_ANY_THROW(evaluate());
  EXPECT_EQ(timeline->begin(), begin);
  EXPECT_GT(timeline->times().front().back().end, Duration::zero());
  EXPECT_EQ(timeline->wall_time(), wall_time);
}

TEST(TimelineRecorder, SaysThatThereWasNoStep) {
  EXPECT_THROW(TimelineRecorder().timeline(CostModel::uniform()), ArgumentError);
}

TEST(ProfileRecorder, MeasuresEveryKindAndIsReadByTheSimulator) {
  const Recorded run("ZBVZeroBubble", 3, gpt_model());
  const Profile profile = run.profile->profile(run.pipeline->stages());
  ASSERT_EQ(profile.costs.stages.size(), 4U);
  for (const StageCost& cost : profile.costs.stages) {
    EXPECT_GT(cost.forward, Duration::zero());
    EXPECT_GT(cost.input_backward, Duration::zero());
    EXPECT_GT(cost.weight_backward, Duration::zero());
    EXPECT_GT(cost.full_backward, Duration::zero());
    EXPECT_GT(cost.activation_bytes, 0);
    EXPECT_GT(cost.weight_gradient_bytes, 0);
    EXPECT_GT(cost.parameter_bytes, 0);
  }
  EXPECT_EQ(profile.costs.stages[0].output_bytes, 2 * 6 * 8 * 4);  // rows, tokens, width, floats
  EXPECT_EQ(profile.costs.stages[1].input_gradient_bytes, 2 * 6 * 8 * 4);
  EXPECT_EQ(profile.costs.stages[0].input_gradient_bytes, 0);

  const Profile read = read_profile(write_profile(profile), "profile.json");
  EXPECT_GT(simulate(run.pipeline->program(), read.costs).makespan, Duration::zero());
}

TEST(ProfileRecorder, CountsTheBytesThatAForwardLeavesBehind) {
  // The stage keeps its input, which the caller made, and what GELU needs: one tensor of [2, 12].
  const Recorded run("GPipe", 2, mlp_model(), 1);
  const Profile profile = run.profile->profile(run.pipeline->stages());
  EXPECT_GE(profile.costs.stages[0].activation_bytes, 2 * 12 * 4);
  EXPECT_LT(profile.costs.stages[0].activation_bytes, 10 * 2 * 12 * 4);
}

TEST(ProfileRecorder, ForgetsTheFirstStepWhenThereIsAnother) {
  const TestModel model = mlp_model();
  Recorded run("1F1B", 0, model);
  const auto sent_in_step_of = [&](int num_rows) {
    run.pipeline->step({model.make_inputs(num_rows)}, {.target = model.make_targets(num_rows)});
    return run.profile->profile(run.pipeline->stages()).costs.stages[0].output_bytes;
  };
  EXPECT_THROW(run.profile->profile(run.pipeline->stages()), ArgumentError);
  const std::int64_t many_bytes = sent_in_step_of(24);
  EXPECT_EQ(sent_in_step_of(12), many_bytes / 2);
  EXPECT_EQ(sent_in_step_of(24), many_bytes) << "the most of those that count";
}

TEST(ProfileRecorder, PrefersStepsThatTrain) {
  const TestModel model = mlp_model();
  Recorded run("1F1B", 0, model);
  const auto evaluate = [&](int num_rows, int count) {
    for (int step = 0; step < count; ++step) run.pipeline->eval({model.make_inputs(num_rows)});
  };
  const auto train = [&](int num_rows) {
    run.pipeline->step({model.make_inputs(num_rows)}, {.target = model.make_targets(num_rows)});
  };
  const auto cost = [&] { return run.profile->profile(run.pipeline->stages()).costs.stages[0]; };
  evaluate(24, 2);
  EXPECT_GT(cost().output_bytes, 0) << "better than nothing";
  EXPECT_EQ(cost().full_backward, Duration::zero());
  train(12);
  const StageCost trained = cost();
  evaluate(24, 10);
  EXPECT_EQ(cost(), trained);
  train(6);
  EXPECT_EQ(cost().output_bytes, trained.output_bytes / 2)
      << "the first step that trains is for warming up, whatever came before";
}

// A program of one rank and two stages, whose actions the test lets begin and end.
struct TimedActions {
  using Time = StepClock::time_point;

  ProfileRecorder recorder{{.num_warm_up_steps = 0}};
  Action forward{.stage = 0, .kind = ActionKind::Forward, .microbatch = 0};
  Action backward{.stage = 1, .kind = ActionKind::FullBackward, .microbatch = 0};
  StageList stages = make_stages([](const torch::Tensor& input) { return input; },
                                 [](const torch::Tensor& input) { return input; });

  TimedActions() {
    recorder.step_begins({.ranks = {{forward, backward}}});
    recorder.rank_begins(0);
  }
  ~TimedActions() { recorder.rank_ends(0); }

  static Time at(int milliseconds) { return Time(std::chrono::milliseconds(milliseconds)); }
  void begin(const Action& action, int time, bool is_part = false) {
    recorder.action_begins(
        {.action = action, .is_part = is_part, .time = at(time), .begin = at(time)});
  }
  void end(const Action& action, int begin, int time, bool is_part = false) {
    recorder.action_ends(
        {.action = action, .is_part = is_part, .time = at(time), .begin = at(begin)});
  }
  Duration forward_time() const {
    return recorder.profile({stages.front()}).costs.stages.front().forward;
  }
};

TEST(ProfileRecorder, KeepsTheLatestSamplesOnly) {
  TimedActions run;
  const auto take = [&](int milliseconds, std::size_t count) {
    for (std::size_t sample = 0; sample < count; ++sample) {
      run.begin(run.forward, 10);
      run.end(run.forward, 10, 10 + milliseconds);
    }
  };
  take(1, 3 * ProfileRecorder::kNumSamples);
  EXPECT_EQ(run.forward_time(), std::chrono::milliseconds(1));
  take(5, ProfileRecorder::kNumSamples / 2 - 1);
  EXPECT_EQ(run.forward_time(), std::chrono::milliseconds(1));
  take(5, 2);
  EXPECT_EQ(run.forward_time(), std::chrono::milliseconds(5));
}

TEST(ProfileRecorder, TimesPartsThatOverlap) {
  TimedActions run;
  run.begin(run.forward, 0, true);
  run.begin(run.backward, 7, true);
  run.end(run.forward, 0, 10, true);
  run.end(run.backward, 7, 12, true);
  EXPECT_EQ(run.forward_time(), std::chrono::milliseconds(10));
}

TEST(Recorders, WatchPartsOnTwoThreads) {
  constexpr int kMicrobatches = 6;
  const TestModel model = mlp_model();
  const auto timeline = std::make_shared<TimelineRecorder>();
  const auto profile = std::make_shared<ProfileRecorder>();
  CustomFunctions functions;
  functions[ActionKind::Overlap] = [](ActionContext& context) {
    std::thread other([&] { context.run_part(1); });
    context.run_part(0);
    other.join();
  };
  PipelineSchedule pipeline(
      make_stages(model.make(4)),
      make_schedule("DualPipeV", {.num_ranks = 2, .num_microbatches = kMicrobatches}),
      {.num_microbatches = kMicrobatches,
       .loss = model.loss,
       .custom_functions = std::move(functions),
       .observers = {timeline, profile}});
  for (int step = 0; step < 3; ++step) {
    pipeline.step({model.make_inputs(12)}, {.target = model.make_targets(12)});
  }
  for (const StageCost& cost : profile->profile(pipeline.stages()).costs.stages) {
    EXPECT_GT(cost.forward, Duration::zero());
    EXPECT_LT(cost.forward, timeline->wall_time());
    EXPECT_GT(cost.activation_bytes, 0);
  }
}

}  // namespace
}  // namespace penstock
