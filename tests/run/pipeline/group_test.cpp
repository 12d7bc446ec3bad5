#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/pipeline/internal/rank_setup.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/transport/in_process/in_process_hub.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/thread_group.h"

// A pipeline that has only some of its ranks to itself: what a process does, here on threads.
namespace penstock {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<ThreadGroup> make_group(int num_ranks, std::vector<int> local_ranks) {
  const auto hub = std::make_shared<InProcessHub>(num_ranks, Extent{8, 8},
                                                  wait_policy_for(2, std::chrono::seconds(60)));
  return std::make_shared<ThreadGroup>(hub, num_ranks, std::move(local_ranks));
}

TEST(Group, TrainsInPartsLikeAWhole) {
  constexpr int kRanks = 3;
  const std::vector<std::vector<int>> parts = {{0, 2}, {1}};  // the ranks of each "process"
  const TestModel model = mlp_model();
  const Schedule order =
      make_schedule("ZBVZeroBubble", {.num_ranks = kRanks, .num_microbatches = 4});
  const Placement placement = placement_of(order, 2 * kRanks);
  const Blocks blocks = model.make(2 * kRanks);
  const Blocks whole_blocks = model.make(2 * kRanks);
  const StageList stages = make_stages(blocks);
  const torch::Tensor inputs = model.make_inputs(8);
  const torch::Tensor targets = model.make_targets(8);

  const auto hub = std::make_shared<InProcessHub>(kRanks, Extent{2 * kRanks, 4},
                                                  wait_policy_for(2, std::chrono::seconds(60)));
  std::vector<StepResult> results(parts.size());
  std::vector<std::thread> processes;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    processes.emplace_back([&, part] {
      StageList local;
      for (const auto& stage : stages) {
        const int rank = placement.rank_of(stage->index());
        const auto& ranks = parts[part];
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) local.push_back(stage);
      }
      PipelineSchedule pipeline(local, order,
                                {.num_microbatches = 4,
                                 .group = std::make_shared<ThreadGroup>(hub, kRanks, parts[part]),
                                 .loss = model.loss});
      // Both ends of the V are on rank 0.
      results[part] =
          part == 0 ? pipeline.step({inputs}, {.target = targets}) : pipeline.step(kNoInputs);
    });
  }
  for (std::thread& process : processes) process.join();

  PipelineSchedule whole(make_stages(whole_blocks), order,
                         {.num_microbatches = 4, .loss = model.loss});
  const StepResult expected = whole.step({inputs}, {.target = targets});
  expect_equal({results[0].output.toTensor()}, {expected.output.toTensor()}, "output");
  expect_equal(results[0].losses, expected.losses, "loss");
  EXPECT_TRUE(results[1].output.isNone());
  EXPECT_TRUE(results[1].losses.empty());
  expect_equal(gradients_of(parameters_of(blocks)), gradients_of(parameters_of(whole_blocks)),
               "gradient");
}

TEST(Group, RefusesSharedParametersOfUnknownStages) {
  StageGraph graph = stage_graph("graph(%x : Tensor, %table : Tensor):\n  return (%x)", {"x"});
  graph.shared = {{"table", torch::ones({1}, torch::requires_grad())}};
  graph.claims = std::make_shared<SharedClaims>();
  const auto stage = std::make_shared<PipelineStage>(make_graph_module(std::move(graph)),
                                                     StagePosition{.index = 0, .num_stages = 2});
  EXPECT_EQ(message_of([&] {
              Schedule1F1B({stage}, {.num_microbatches = 1, .group = make_group(2, {0})});
            }),
            "stage 0 uses the parameter \"table\" together with stages of other processes, which "
            "are not known; take all stages from one Pipe");
}

TEST(Group, ChecksThatStagesAreThoseOfItsRanks) {
  const TestModel model = mlp_model();
  const StageList stages = make_stages(model.make(4));
  const auto make = [&](const StageList& local, int num_ranks, std::vector<int> ranks) {
    return message_of([&] {
      ScheduleInterleaved1F1B(local, {.num_microbatches = 2,
                                      .group = make_group(num_ranks, std::move(ranks)),
                                      .loss = model.loss});
    });
  };
  EXPECT_EQ(make({stages[0]}, 2, {0}),
            "stage 2 is missing; the schedule gives rank 0 the stages 0, 2");
  EXPECT_EQ(make({stages[0], stages[1]}, 2, {0}),
            "stage 1 belongs to rank 1, but this process is rank 0; make only the stages that the "
            "schedule gives to it");
  EXPECT_EQ(make({stages[0], stages[0]}, 2, {0}), "stage 0 is there twice");
  EXPECT_EQ(make({stages[0], make_stages(model.make(3))[2]}, 2, {0}),
            "stage 0 says that there are 4 stages, but stage 2 says 3");
  EXPECT_EQ(make({stages[0], stages[2]}, 2, {0}), "nothing was thrown");
  EXPECT_THAT(message_of([&] {
                PipelineSchedule({stages[0]},
                                 make_schedule("1F1B", {.num_ranks = 4, .num_microbatches = 2}),
                                 {.num_microbatches = 2, .group = make_group(3, {0})});
              }),
              HasSubstr("the schedule is for 4 ranks, but the group has 3"));
}

TEST(ThreadOptions, DivideTheThreadsOfTheCallerAndTheCoresOfAHost) {
  const int before = at::get_num_threads();
  const int cores = static_cast<int>(allowed_cores().size());
  const auto threads = [](const CoreUse& use, int wanted = 0) {
    return thread_options({.intra_op_threads = wanted}, use).intra_op_threads;
  };
  at::set_num_threads(12);
  EXPECT_EQ(threads({.num_threads = 1}), 12);
  EXPECT_EQ(threads({.num_threads = 5}), 2);
  EXPECT_EQ(threads({.num_threads = 13}), 1) << "at least one";
  EXPECT_EQ(threads({.num_threads = 5}, 7), 7) << "as was asked for";
  EXPECT_EQ(threads({.num_threads = 1, .num_processes = 2}), std::max(1, std::min(12, cores / 2)));
  EXPECT_EQ(threads({.num_threads = 2, .num_processes = 2}), std::max(1, std::min(6, cores / 4)));
  EXPECT_EQ(threads({.num_threads = 1, .num_processes = cores + 1}), 1);
  at::set_num_threads(1);  // as who started the processes has it
  EXPECT_EQ(threads({.num_threads = 1, .num_processes = 2}), 1);
  at::set_num_threads(before);
  EXPECT_FALSE(thread_options({}, {.num_threads = 2}).shares_cores);
  EXPECT_TRUE(thread_options({}, {.num_processes = 2}).shares_cores);
  EXPECT_EQ(thread_options({}, {.num_processes = 100'000}).wait.spin.count(), 0);
}

TEST(ThreadOptions, PinRanksUnlessAllOfAHostOutnumberTheCores) {
  const int cores = static_cast<int>(allowed_cores().size());
  const auto pinned = [](const CoreUse& use) {
    return thread_options({.pins_threads = true}, use);
  };
  EXPECT_TRUE(pinned({.num_threads = cores}).pins_threads);
  EXPECT_FALSE(pinned({.num_threads = cores + 1}).pins_threads);
  EXPECT_TRUE(pinned({.num_processes = cores}).pins_threads);
  EXPECT_FALSE(pinned({.num_threads = 2, .num_processes = cores}).pins_threads);
  EXPECT_EQ(pinned({.num_processes = 2, .place = 1}).first_core, 1);
  EXPECT_FALSE(thread_options({}, {}).pins_threads);
}

TEST(Group, AsksTheEndsOfThePipelineForInputsAndTargetsOnly) {
  const TestModel model = mlp_model();
  const StageList stages = make_stages(model.make(2));
  Schedule1F1B last({stages[1]},
                    {.num_microbatches = 2, .group = make_group(2, {1}), .loss = model.loss});
  EXPECT_THAT(message_of([&] { last.step(kNoInputs); }), HasSubstr("needs StepOptions::target"));
}

}  // namespace
}  // namespace penstock
