#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/json.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/processes/process_ranks.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

// Where a rank comes to harm.
struct Fault {
  int rank = 0;
  int step = 0;  // position in its list
  int signal = SIGKILL;
};

// Sends the signal to its own process when the action begins, after it has noted the time.
class Saboteur final : public Observer {
 public:
  Saboteur(const Fault& fault, int note) : fault_(fault), note_(note) {}
  void step_begins(const Schedule& /*program*/) override { ++num_steps_; }
  void action_begins(const ActionEvent& event) override {
    const bool is_there = event.rank == fault_.rank && event.step == fault_.step && !event.is_part;
    if (!is_there || num_steps_ != kStep) return;
    const auto now = Clock::now().time_since_epoch().count();
    [[maybe_unused]] const ssize_t written = write(note_, &now, sizeof(now));
    kill(getpid(), fault_.signal);
  }

 private:
  static constexpr int kStep = 2;  // all are connected, and have worked together once

  Fault fault_;
  int note_;
  int num_steps_ = 0;
};

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

struct Tally {
  int num_cases = 0;
  int num_survivors = 0;
  int num_named = 0;    // survivors that threw an error with the right name
  int num_in_time = 0;  // of those, within the bound
  double slowest = 0;   // seconds
};

// Trains on three processes and lets `fault` happen in the second step.
void inject(const TrainingCase& shape, const Fault& fault, std::chrono::nanoseconds deadline,
            double bound_s, const std::string& replay_path, Tally& tally) {
  std::array<int, 2> note = {};
  ASSERT_EQ(pipe(note.data()), 0);
  const std::vector<RankEnd> ends = run_forked(
      shape.num_ranks,
      [&](const WorldOptions& options) {
        World world(options);
        const auto group =
            std::make_shared<ProcessRanks>(world, ProcessRankOptions{.replay_path = replay_path});
        return train(mlp_model(), shape,
                     {.group = group,
                      .num_steps = 3,  // a rank that is done with a step notices in the next
                      .deadline = deadline,
                      .observers = {std::make_shared<Saboteur>(fault, note[1])}});
      },
      // Over a port, so that the store dies with rank 0.
      {.meeting = Meeting::Port,
       .stopped_rank = fault.signal == SIGSTOP ? fault.rank : -1,
       .patience = std::chrono::seconds(30)});
  close(note[1]);
  Clock::rep ticks = 0;
  ASSERT_EQ(read(note[0], &ticks, sizeof(ticks)), static_cast<ssize_t>(sizeof(ticks)))
      << "the fault did not happen";
  close(note[0]);
  const Clock::time_point time_of_fault{Clock::duration(ticks)};
  ++tally.num_cases;
  EXPECT_EQ(ends[static_cast<std::size_t>(fault.rank)].signal, SIGKILL);
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    if (rank == fault.rank) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    ++tally.num_survivors;
    const std::string name = "rank " + std::to_string(fault.rank) + " (pid ";
    const bool is_named = end.has_thrown && end.text.substr(0, 200).find(name) != std::string::npos;
    EXPECT_TRUE(is_named) << shape.schedule << ", rank " << fault.rank << " step " << fault.step
                          << ": rank " << rank << " said \"" << end.text << "\", signal "
                          << end.signal;
    if (!is_named) continue;
    ++tally.num_named;
    const double seconds = std::chrono::duration<double>(end.time - time_of_fault).count();
    tally.slowest = std::max(tally.slowest, seconds);
    if (seconds <= bound_s) ++tally.num_in_time;
  }
}

void print(const char* what, const TrainingCase& shape, const Tally& tally) {
  std::printf("%s %s: %d cases, %d of %d survivors named the rank, %d in time, slowest %.3f s\n",
              what, shape.schedule.c_str(), tally.num_cases, tally.num_named, tally.num_survivors,
              tally.num_in_time, tally.slowest);
}

Schedule program_of(const TrainingCase& shape) {
  return lower(make_schedule(shape.schedule, {.num_ranks = shape.num_ranks,
                                              .num_microbatches = shape.num_microbatches}),
               {.sharding = false});
}

class FaultInjection : public testing::TestWithParam<const char*> {
 protected:
  const TrainingCase shape_{GetParam(), 3, 2};
  const std::set<std::string> files_before_ = shared_memory_files();

  void expect_nothing_left() const {
    EXPECT_EQ(shared_memory_files(), files_before_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
  }
};

TEST_P(FaultInjection, AllSurvivorsNameTheRankThatWasKilledAtAnyAction) {
  constexpr double kBound = 2;  // seconds from a death to the error on every other rank
  const Schedule program = program_of(shape_);
  Tally tally;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const int num_actions = static_cast<int>(program.actions_of(rank).size());
    for (int step = 0; step < num_actions; ++step) {
      inject(shape_, {rank, step, SIGKILL}, std::chrono::seconds(20), kBound, "", tally);
      if (HasFatalFailure()) return;
    }
  }
  print("killed", shape_, tally);
  EXPECT_EQ(tally.num_named, tally.num_survivors);
  EXPECT_EQ(tally.num_in_time, tally.num_survivors);
  expect_nothing_left();
}

TEST_P(FaultInjection, AllSurvivorsNameTheRankThatWasStopped) {
  constexpr auto kDeadline = std::chrono::seconds(1);
  constexpr double kBound = 1 + 2;  // the deadline, and a second or two to ask everybody
  const Schedule program = program_of(shape_);
  Tally tally;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const int num_actions = static_cast<int>(program.actions_of(rank).size());
    for (const int step : {num_actions / 4, num_actions / 2}) {
      inject(shape_, {rank, step, SIGSTOP}, kDeadline, kBound, "", tally);
      if (HasFatalFailure()) return;
    }
  }
  print("stopped", shape_, tally);
  EXPECT_EQ(tally.num_named, tally.num_survivors);
  EXPECT_EQ(tally.num_in_time, tally.num_survivors);
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Processes, FaultInjection, testing::Values("1F1B", "ZBVZeroBubble"),
                         [](const auto& instance) { return std::string("On") + instance.param; });

TEST(FaultInjection, WritesDownHowTheRanksStoodWhenTheyStalled) {
  const TrainingCase shape{"1F1B", 3, 3};
  const auto path = std::filesystem::temp_directory_path() /
                    ("penstock-replay-" + std::to_string(getpid()) + ".json");
  Tally tally;
  inject(shape, {1, 6, SIGSTOP}, std::chrono::seconds(1), 3, path, tally);
  const std::string text = contents_of(path);
  std::filesystem::remove(path);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("format"), "penstock-replay");
  EXPECT_THAT(json.at("reason").get<std::string>(), HasSubstr("does not answer"));
  EXPECT_EQ(json.at("ranks").size(), 3U);
  EXPECT_EQ(json.at("ranks")[1].at("state"), "silent");
  EXPECT_EQ(json.at("ranks")[2].at("state"), "waiting");
  EXPECT_EQ(json.at("ranks")[2].at("waits_for")[0].at("rank"), 1);
  EXPECT_EQ(read_json(json.at("program").dump(), "replay"), program_of(shape));
}

TEST(FaultInjection, EndsASaveThatARankDoesNotComeTo) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("penstock-save-" + std::to_string(getpid()));
  const auto ends = run_forked(2, [&](const WorldOptions& options) -> std::string {
    World world(options);
    const auto ranks = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    if (world.rank() == 1) kill(getpid(), SIGKILL);
    save_checkpoint(folder, std::vector<RankState>{{.tensors = {{"weight", torch::ones(3)}}}},
                    {.step = 1}, {.group = checkpoint_group(world, world.everyone(), ranks)});
    return "saved";
  });
  EXPECT_TRUE(ends[0].has_thrown);
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1"));
  EXPECT_THAT(ends[0].text, HasSubstr("has died"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock
