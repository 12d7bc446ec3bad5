#include "penstock/run/processes/process_ranks.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// Trains all models with all schedules, in one group of processes or in threads.
std::string train_everything(int num_ranks, const std::shared_ptr<RankGroup>& group) {
  std::string lines;
  for (const TrainingCase& shape : training_cases(num_ranks)) {
    for (const TestModel& model : test_models()) lines += train(model, shape, {.group = group});
  }
  return lines;
}

struct Way {
  int num_ranks;
  TransportKind transport;
};

class OverProcesses : public ::testing::TestWithParam<Way> {};

TEST_P(OverProcesses, EveryScheduleTrainsLikeThreads) {
  const auto [num_ranks, transport] = GetParam();
  const auto lines = expect_like_threads(
      num_ranks, transport,
      [num_ranks = num_ranks](const auto& group) { return train_everything(num_ranks, group); });
  EXPECT_GT(lines.size(), 1000U);
}

INSTANTIATE_TEST_SUITE_P(
    Processes, OverProcesses,
    ::testing::Values(Way{2, TransportKind::Automatic}, Way{3, TransportKind::Automatic},
                      Way{4, TransportKind::Automatic}, Way{2, TransportKind::Gloo},
                      Way{3, TransportKind::Gloo}, Way{4, TransportKind::Gloo}),
    [](const auto& instance) {
      return (instance.param.transport == TransportKind::Gloo ? "Gloo" : "SharedMemory") +
             std::to_string(instance.param.num_ranks);
    });

TEST(OwnBackend, TrainsLikeThreads) {
  expect_like_threads(3, TransportKind::OwnBackend, [](const auto& group) {
    std::string lines;
    for (const char* schedule : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
      lines += train(mlp_model(), {schedule, 3, 4}, {.group = group});
    }
    return lines;
  });
}

// Runs a step of 1F1B on three ranks that share `change`, which may spoil what one of them does.
using Change = std::function<void(int rank, ProcessRankOptions&, ScheduleOptions&, std::string&)>;
std::vector<RankEnd> run_with(const Change& change) {
  return run_forked(3, [&](const WorldOptions& options) {
    const TestModel model = mlp_model();
    std::string name = "1F1B";
    ProcessRankOptions ranks;
    ScheduleOptions schedule{.num_microbatches = 4, .loss = model.loss};
    change(options.rank, ranks, schedule, name);
    World world(options);
    schedule.group = std::make_shared<ProcessRanks>(world, ranks);
    const StageList stages = make_stages(model.make(3));
    const auto pipeline =
        get_schedule_class(name)({stages[static_cast<std::size_t>(options.rank)]}, schedule);
    pipeline->step({model.make_inputs(8)}, {.target = model.make_targets(8)});
    return std::string("done");
  });
}

void expect_all_to_throw(const std::vector<RankEnd>& ends, const std::string& pattern) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_TRUE(ends[rank].has_thrown)
        << rank << ": " << ends[rank].text << " signal " << ends[rank].signal;
    EXPECT_THAT(ends[rank].text, MatchesRegex(pattern)) << rank;
  }
}

TEST(ProcessRanks, RefusesRanksThatRunSomethingElse) {
  const std::string begin = "rank 2 \\(pid [0-9]+ at 127.0.0.1\\) ";
  const std::string end =
      ", which is what rank 0 \\(pid [0-9]+ at 127.0.0.1\\) has; start all "
      "ranks alike";
  expect_all_to_throw(run_with([](int rank, auto&, auto&, auto& name) {
                        if (rank == 2) name = "GPipe";
                      }),
                      begin + "has another schedule: its actions of rank 0 are different" + end);
  expect_all_to_throw(run_with([](int rank, auto&, auto& schedule, auto&) {
                        if (rank == 2) schedule.num_microbatches = 5;
                      }),
                      begin + "has 5 microbatches instead of 4" + end);
  expect_all_to_throw(run_with([](int rank, auto& ranks, auto&, auto&) {
                        ranks.model = rank == 2 ? "gpt-small" : "gpt-large";
                      }),
                      begin + "has the model \"gpt-small\" instead of \"gpt-large\"" + end);
}

TEST(ProcessRanks, RefusesRanksOfAnotherVersion) {
  const auto ends = run_forked(2, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    if (world.rank() == 0) return train(mlp_model(), {"1F1B", 2, 2}, {.group = group});
    // What a later version would say in place of this one.
    world.store().set("monitor/world/0/agreement/0/1", R"({"version": "99.1", "model": 3})");
    for (;;) group->require_healthy();
  });
  expect_all_to_throw(ends,
                      "rank 1 \\(pid [0-9]+ at 127.0.0.1\\) runs Penstock \"99.1\" instead of "
                      "\"[0-9.]+\", which is what rank 0 \\(pid [0-9]+ at 127.0.0.1\\) has; start "
                      "all ranks alike");
}

// Stops its process in front of the first backward of the second step.
class StopsInFrontOfBackward final : public Observer {
 public:
  void step_begins(const Schedule& /*program*/) override { ++num_steps_; }
  void action_begins(const ActionEvent& event) override {
    if (num_steps_ == 2 && event.action.kind == ActionKind::FullBackward) kill(getpid(), SIGSTOP);
  }

 private:
  int num_steps_ = 0;
};

// Over Gloo a message is kept until it was taken. Rank 1 is done when it has sent its gradients,
// and nobody will take the last of them.
TEST(ProcessRanks, EndThoughNobodyTakesWhatTheySent) {
  const auto ends = run_forked(2,
                               [](const WorldOptions& options) {
                                 World world(options);
                                 const auto group = std::make_shared<ProcessRanks>(
                                     world, ProcessRankOptions{.transport = TransportKind::Gloo});
                                 std::vector<std::shared_ptr<Observer>> observers;
                                 if (world.rank() == 0)
                                   observers.push_back(std::make_shared<StopsInFrontOfBackward>());
                                 return train(mlp_model(), {"GPipe", 2, 8},
                                              {.group = group,
                                               .num_steps = 2,
                                               .deadline = std::chrono::seconds(1),
                                               .observers = observers});
                               },
                               {.stopped_rank = 0, .patience = std::chrono::seconds(15)});
  EXPECT_EQ(ends[0].signal, SIGKILL);
  EXPECT_TRUE(ends[1].has_returned) << "signal " << ends[1].signal << " " << ends[1].text;
}

TEST(ProcessRanks, RefusesRanksThatHaveAnotherModel) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    get_schedule_class("1F1B")({captured_stage(options.rank == 1 ? 9 : 8, options.rank)},
                               {.num_microbatches = 4, .group = group});
    return std::string("done");
  });
  expect_all_to_throw(ends,
                      "rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has another model: the names, types "
                      "or shapes of the tensors of its stage 0 are different, which is what rank 0 "
                      "\\(pid [0-9]+ at 127.0.0.1\\) has; start all ranks alike");
}

TEST(ProcessRanks, QuotesTheRankThatHasFailed) {
  const std::vector<RankEnd> ends = run_with([](int rank, auto&, auto& schedule, auto&) {
    if (rank != 1) return;
    schedule.custom_functions[ActionKind::Forward] = [](ActionContext& context) {
      if (context.action().microbatch == 2) throw std::runtime_error("the cable was cut");
      context.run();
    };
  });
  const std::string own = "rank 1, step [0-9]+ \\(1F2\\): the cable was cut";
  EXPECT_THAT(ends[1].text, MatchesRegex(own));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)].text,
                MatchesRegex("rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has failed: " + own));
  }
}

TEST(ProcessRanks, AreOfNoUseAfterAFailure) {
  const std::vector<RankEnd> ends = run_forked(2, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const auto module = make_stage_module([](torch::Tensor x) {
      if (x.numel() == 2) throw std::runtime_error("two is too many");
      return x;
    });
    Schedule1F1B pipeline({std::make_shared<PipelineStage>(
                              module, StagePosition{.index = options.rank, .num_stages = 2})},
                          {.num_microbatches = 1, .group = group});
    world.exchange(world.everyone(), "made", "");  // none fails before all have a pipeline
    try {
      pipeline.eval({torch::ones({2})});
    } catch (const Error&) {
    }
    try {
      pipeline.eval({torch::ones({1})});
    } catch (const GroupError& error) {
      return error.what();
    }
    return "nothing was thrown";
  });
  for (const RankEnd& end : ends) {
    EXPECT_THAT(end.text, AllOf(StartsWith("the ranks cannot work together any more: rank 0 (pid "),
                                HasSubstr("two is too many")));
  }
}

// Whether a process has ended, but its parent does not know yet.
bool is_zombie(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") Z") != std::string::npos;
}

// One stage per rank that returns what it gets.
std::unique_ptr<PipelineSchedule> make_relay(const WorldOptions& options,
                                             const std::shared_ptr<RankGroup>& group) {
  return std::make_unique<Schedule1F1B>(
      StageList{std::make_shared<PipelineStage>(
          make_stage_module([](torch::Tensor x) { return x; }),
          StagePosition{.index = options.rank, .num_stages = options.size})},
      ScheduleOptions{.num_microbatches = 2, .group = group, .deadline = std::chrono::seconds(20)});
}

TEST(ProcessRanks, NoticeARankThatLeavesEarly) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const auto relay = make_relay(options, group);
    relay->eval({torch::ones({2})});
    if (options.rank != 1) relay->eval({torch::ones({2})});
    return "left";
  });
  EXPECT_EQ(ends[1].text, "left");
  // Rank 0 only sends, and may be done before it can know.
  EXPECT_THAT(ends[2].text,
              MatchesRegex("rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has left, while rank 2 \\(pid "
                           "[0-9]+ at 127.0.0.1\\) waits for it to send the activations of "
                           "microbatch 0"));
}

// Rank 3 waits for rank 2, which waits for rank 1, which works: for longer, in all, than the
// deadline.
TEST(ProcessRanks, WaitAsLongAsAnybodyTheyWaitForMoves) {
  const std::vector<RankEnd> ends = run_forked(4, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const auto work = make_stage_module([](torch::Tensor x) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      return x;
    });
    Schedule1F1B pipeline(
        {std::make_shared<PipelineStage>(work,
                                         StagePosition{.index = options.rank, .num_stages = 4})},
        {.num_microbatches = 1, .group = group, .deadline = std::chrono::milliseconds(1000)});
    pipeline.eval({torch::ones({1})});
    return "done";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "done");
}

TEST(ProcessRanks, DoNotWaitForeverForOneToMakeItsPipeline) {
  const std::vector<RankEnd> ends =
      run_forked(3,
                 [](const WorldOptions& options) -> std::string {
                   World world(options);
                   const auto group = std::make_shared<ProcessRanks>(
                       world, ProcessRankOptions{.deadline = std::chrono::seconds(1)});
                   if (options.rank == 1) kill(getpid(), SIGSTOP);
                   make_relay(options, group);
                   return "made";
                 },
                 {.stopped_rank = 1});
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_THAT(ends[rank].text, MatchesRegex("waited 1 s for rank 1 \\(pid [0-9]+ at 127.0.0.1\\) "
                                              "to connect a pipeline"));
  }
}

// One is slower, and could read what the others told in the turn before.
TEST(ProcessRanks, ComeTogetherAgainWithAnotherModel) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) -> std::string {
    World world(options);
    for (const char* model : {"small", "large", "larger"}) {
      const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{.model = model});
      if (options.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      make_relay(options, group)->eval({torch::ones({2})});
    }
    return "done";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "done");
}

TEST(ProcessRanks, NoticeARankThatFailsOutsideOfAStep) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const auto relay = make_relay(options, group);
    relay->eval({torch::ones({2})});
    if (options.rank == 0) throw std::runtime_error("the disk is full");
    relay->eval({torch::ones({2})});
    return "left";
  });
  EXPECT_EQ(ends[0].text, "the disk is full");
  // Known in the next step, or before it begins, which is said in front.
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_THAT(ends[rank].text, ContainsRegex("rank 0 \\(pid [0-9]+ at 127.0.0.1\\) has failed "
                                               "outside of a step$"));
  }
}

TEST(ProcessRanks, QuoteARankThatGivesUpOutsideOfAStep) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) -> std::string {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const auto relay = make_relay(options, group);
    relay->eval({torch::ones({2})});
    if (options.rank == 0) {
      group->give_up("the disk is full");
      throw std::runtime_error("no more training");
    }
    relay->eval({torch::ones({2})});
    return "left";
  });
  EXPECT_EQ(ends[0].text, "no more training");
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_THAT(ends[rank].text, ContainsRegex("rank 0 \\(pid [0-9]+ at 127.0.0.1\\) has failed "
                                               "outside of a step: the disk is full$"));
  }
}

TEST(ProcessRanks, PartWithoutAlarmInAnyOrder) {
  for (const Meeting meeting : {Meeting::File, Meeting::Port}) {
    for (int last = 0; last < 3; ++last) {
      const std::vector<RankEnd> ends = run_forked(
          3,
          [&](const WorldOptions& options) -> std::string {
            World world(options);
            const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
            const auto relay = make_relay(options, group);
            relay->eval({torch::ones({2})});
            // Rank 0 stays, because it holds the store; the others are gone before the last one.
            for (const int other : {1, 2}) {
              if (options.rank != last || other == last) continue;
              while (getpgid(world.member(other).process_id) >= 0) {
                if (is_zombie(world.member(other).process_id)) break;
                std::this_thread::yield();
              }
            }
            return "left";
          },
          {.meeting = meeting});
      for (const RankEnd& end : ends) EXPECT_EQ(end.text, "left");
    }
  }
}

}  // namespace
}  // namespace penstock
