#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/simulator/simulate.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/measure/timeline_recorder.h"
#include "penstock/run/pipeline/schedules.h"
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

TEST(ProfileRecorder, SaysThatItNeedsMoreSteps) {
  const Recorded run("1F1B", 1);
  EXPECT_THROW(run.profile->profile(run.pipeline->stages()), ArgumentError);
}

}  // namespace
}  // namespace penstock
