#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/json.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/transport/shared_memory/internal/segment.h"
#include "tests/run/processes/faults.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// What tests may leave behind, by the names of what holds it.
std::multiset<std::string> names_in(const std::filesystem::path& folder) {
  std::multiset<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    names.insert(error ? entry.path().filename().string() : target.string());
  }
  return names;
}

// Whose parent dies becomes a child of this process while this object lives, so that none is lost.
class Leftovers {
 public:
  Leftovers() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;
  Leftovers(Leftovers&&) = delete;
  Leftovers& operator=(Leftovers&&) = delete;
  ~Leftovers() { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  // What there is that was not there before; empty: nothing.
  std::string find() const {
    std::string found;
    if (names_in("/dev/shm") != shared_memory_) found += "a file of shared memory, ";
    // Segments have no names: they are there as long as a process has them open or mapped.
    if (names_in("/proc/self/fd") != descriptors_) found += "an open file, ";
    if (contents_of("/proc/self/maps").find("memfd:penstock") != std::string::npos) {
      found += "a segment, ";
    }
    if (waitpid(-1, nullptr, WNOHANG) != -1) found += "a process, ";
    return found;
  }

 private:
  std::multiset<std::string> shared_memory_ = names_in("/dev/shm");
  std::multiset<std::string> descriptors_ = names_in("/proc/self/fd");
};

TEST(Leftovers, AreSeen) {
  const Leftovers leftovers;
  EXPECT_EQ(leftovers.find(), "");
  // A rank that has started another process, and does not end it.
  const std::vector<RankEnd> ends = run_forked(1, [](const WorldOptions&) {
    const pid_t orphan = fork();
    if (orphan == 0) {
      close_range(3, ~0U, 0);  // nobody is to wait for what it says
      for (;;) pause();
    }
    return std::to_string(orphan);
  });
  EXPECT_EQ(leftovers.find(), "a process, ");
  kill(std::stoi(ends[0].text), SIGKILL);
  EXPECT_EQ(waitpid(-1, nullptr, 0), std::stoi(ends[0].text));
  {
    const OwnSegment segment(1, {.num_entries = 4, .num_blocks = 2, .heap_size = 4096});
    EXPECT_EQ(leftovers.find(), "an open file, a segment, ");
  }
  EXPECT_EQ(leftovers.find(), "");
}

std::function<std::string(const TrainingOptions&)> training_of(const TrainingCase& shape) {
  return [shape](const TrainingOptions& options) { return train(mlp_model(), shape, options); };
}

Schedule program_of(const TrainingCase& shape) {
  return lower(make_schedule(shape.schedule, {.num_ranks = shape.num_ranks,
                                              .num_microbatches = shape.num_microbatches}),
               {.sharding = false});
}

class FaultInjection : public ::testing::TestWithParam<const char*> {
 protected:
  const TrainingCase shape_{GetParam(), 3, 2};
  const Leftovers leftovers_;

  void expect_nothing_left() const { EXPECT_EQ(leftovers_.find(), ""); }

  // Kills each rank at one of `every` actions, and stops it in the middle. Returns how stops ended.
  Tally expect_named_at_some_actions(const std::string& what, int every, FaultyRun run) const {
    const Schedule program = program_of(shape_);
    std::vector<Fault> kills;
    std::vector<Fault> stops;
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const int num_actions = static_cast<int>(program.actions_of(rank).size());
      for (int step = rank; step < num_actions; step += every) kills.push_back({rank, step});
      stops.push_back({rank, num_actions / 2, SIGSTOP});
    }
    run.num_ranks = shape_.num_ranks;
    run.train = training_of(shape_);
    run.deadline = std::chrono::seconds(20);
    run.bound_s = 2;
    expect_all_named(("killed " + what).c_str(), inject(run, kills));
    run.deadline = std::chrono::seconds(1);
    run.bound_s = 1 + 2;
    const Tally stopped = inject(run, stops);
    expect_all_named(("stopped " + what).c_str(), stopped);
    expect_nothing_left();
    return stopped;
  }
};

TEST_P(FaultInjection, AllSurvivorsNameTheRankThatWasKilledAtAnyAction) {
  const Schedule program = program_of(shape_);
  std::vector<Fault> faults;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const int num_actions = static_cast<int>(program.actions_of(rank).size());
    for (int step = 0; step < num_actions; ++step) faults.push_back({rank, step, SIGKILL});
  }
  expect_all_named("killed", inject({.num_ranks = shape_.num_ranks,
                                     .train = training_of(shape_),
                                     .deadline = std::chrono::seconds(20),
                                     .bound_s = 2},  // from a death to the error on all others
                                    faults));
  expect_nothing_left();
}

TEST_P(FaultInjection, AllSurvivorsNameTheRankThatWasStopped) {
  const Schedule program = program_of(shape_);
  std::vector<Fault> faults;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const int num_actions = static_cast<int>(program.actions_of(rank).size());
    faults.push_back({rank, num_actions / 4, SIGSTOP});
    faults.push_back({rank, num_actions / 2, SIGSTOP});
  }
  expect_all_named("stopped", inject({.num_ranks = shape_.num_ranks,
                                      .train = training_of(shape_),
                                      .deadline = std::chrono::seconds(1),
                                      .bound_s = 1 + 2},  // and a second or two to ask everybody
                                     faults));
  expect_nothing_left();
}

TEST_P(FaultInjection, AllSurvivorsNameTheRankOverGloo) {
  expect_named_at_some_actions("over Gloo", 5, {.transport = TransportKind::Gloo});
}

// The backend does not notice it, as that of MPI does not.
TEST_P(FaultInjection, AllSurvivorsNameTheRankOverABackendOfTheirOwn) {
  expect_all_named("killed over an own backend", inject({.num_ranks = shape_.num_ranks,
                                                         .train = training_of(shape_),
                                                         .transport = TransportKind::OwnBackend,
                                                         .deadline = std::chrono::seconds(20),
                                                         .bound_s = 2},
                                                        {{0, 2}, {1, 4}, {2, 6}}));
  expect_nothing_left();
}

// As ranks of one host do that the launcher has started.
TEST_P(FaultInjection, AllSurvivorsNameTheRankOfAFile) {
  const Tally stopped =
      expect_named_at_some_actions("after meeting in a file", 4, {.meeting = Meeting::File});
  EXPECT_THAT(stopped.text, HasSubstr("does not answer")) << "the others say where they are";
}

INSTANTIATE_TEST_SUITE_P(Processes, FaultInjection, ::testing::Values("1F1B", "ZBVZeroBubble"),
                         [](const auto& instance) { return std::string("On") + instance.param; });

std::vector<ConnectFault> faults_while_connecting(
    int signal, const std::vector<std::chrono::microseconds>& moments) {
  using Place = ConnectFault::Place;
  std::vector<ConnectFault> faults;
  for (int rank = 0; rank < 3; ++rank) {
    faults.push_back({rank, signal, Place::BeforeWatch});
    for (const auto moment : moments) {
      faults.push_back({rank, signal, Place::InWatch, moment});
      faults.push_back({rank, signal, Place::InTransport, moment});
    }
  }
  return faults;
}

// The others are inside Gloo, which waits for them all and names nobody.
TEST(FaultInjection, AllSurvivorsNameTheRankThatWasKilledWhileTheyConnect) {
  using std::chrono::microseconds;
  expect_all_named(
      "killed while connecting",
      inject_while_connecting({.deadline = std::chrono::seconds(20), .bound_s = 2},
                              faults_while_connecting(SIGKILL, {microseconds(0), microseconds(700),
                                                                microseconds(2000)})));
}

TEST(FaultInjection, AllSurvivorsNameTheRankThatWasStoppedWhileTheyConnect) {
  using std::chrono::microseconds;
  constexpr double kStoreTime = 5;  // that libtorch's store has for its first answer, at least
  expect_all_named("stopped while connecting",
                   inject_while_connecting(
                       {.deadline = std::chrono::seconds(2), .bound_s = kStoreTime + 2},
                       faults_while_connecting(SIGSTOP, {microseconds(0), microseconds(2000)})));
}

// The kernel does not tell of processes on other hosts. At first, rank 0 alone is connected to
// them.
TEST(FaultInjection, AllSurvivorsNameTheRankOfAnotherHostThatWasKilledWhileTheyConnect) {
  using std::chrono::microseconds;
  if (!can_have_hosts()) GTEST_SKIP() << "a process may not have a host name of its own";
  expect_all_named("killed on another host while connecting",
                   inject_while_connecting(
                       {.deadline = std::chrono::seconds(20), .bound_s = 2, .is_on_hosts = true},
                       faults_while_connecting(SIGKILL, {microseconds(0), microseconds(2000)})));
}

TEST(FaultInjection, AllSurvivorsNameTheRankThatWasKilledOnAnotherHost) {
  if (!can_have_hosts()) GTEST_SKIP() << "a process may not have a host name of its own";
  const TrainingCase shape{"1F1B", 3, 2};
  expect_all_named("killed on another host",
                   inject({.num_ranks = shape.num_ranks,
                           .train = training_of(shape),
                           .deadline = std::chrono::seconds(20),
                           .bound_s = 2,
                           .is_on_hosts = true},
                          {{0, 2}, {0, 6}, {1, 0}, {1, 5}, {2, 1}, {2, 4}}));
}

// The report is written by one rank, held by another, and must reach the others before both end.
TEST(FaultInjection, ReachesRanksThatNeitherWroteNorHoldTheReport) {
  const TrainingCase shape{"1F1B", 5, 5};
  expect_all_named("killed one of five", inject({.num_ranks = shape.num_ranks,
                                                 .train = training_of(shape),
                                                 .deadline = std::chrono::seconds(20),
                                                 .bound_s = 2},
                                                {{2, 3}, {2, 9}, {3, 5}, {1, 7}}));
}

TEST(FaultInjection, WritesDownHowTheRanksStoodWhenTheyStalled) {
  const TrainingCase shape{"1F1B", 3, 3};
  const auto path = std::filesystem::temp_directory_path() /
                    ("penstock-replay-" + std::to_string(getpid()) + ".json");
  inject({.num_ranks = shape.num_ranks,
          .train = training_of(shape),
          .deadline = std::chrono::seconds(1),
          .bound_s = 3,
          .replay_path = path},
         {{1, 6, SIGSTOP}});
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

// What the others say when rank 0 is stopped, which holds what the ranks share.
Tally stop_rank_zero(const TrainingCase& shape, const std::string& replay_path) {
  const Tally tally = inject({.num_ranks = shape.num_ranks,
                              .train = training_of(shape),
                              .deadline = std::chrono::seconds(1),
                              .bound_s = 3,
                              .replay_path = replay_path},
                             {{0, 2, SIGSTOP}});
  expect_all_named(fmt::format("stopped rank 0 of {}", shape.num_ranks).c_str(), tally);
  EXPECT_THAT(tally.text,
              ContainsRegex("which holds what the ranks share, has not answered for [0-9.]+ s"));
  return tally;
}

// The others ask each other elsewhere.
TEST(FaultInjection, WritesDownHowTheRanksStoodWhenRankZeroStalls) {
  const TrainingCase shape{"1F1B", 4, 4};
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("replay.json");
  const Tally tally = stop_rank_zero(shape, path);
  EXPECT_THAT(tally.text, HasSubstr("does not answer: stopped, or cut off\n  rank 1 (pid "));
  EXPECT_THAT(tally.text, MatchesRegex(".*\n  rank 2 \\(pid [0-9]+ at 127.0.0.1\\) waits at step "
                                       "[0-9]+ \\(2F[0-9]\\) for rank 1 \\(pid [0-9]+ at "
                                       "127.0.0.1\\) to send the activations of microbatch [0-9], "
                                       "which has not sent them\n  rank 3 .*"));
  const auto json = nlohmann::json::parse(contents_of(path));
  EXPECT_EQ(json.at("ranks")[0].at("state"), "silent");
  for (std::size_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(json.at("ranks")[rank].at("state"), "waiting");
    EXPECT_EQ(json.at("ranks")[rank].at("waits_for")[0].at("rank"), rank - 1);
    EXPECT_FALSE(std::filesystem::exists(own_replay_path(path, static_cast<int>(rank))));
  }
  EXPECT_EQ(read_json(json.at("program").dump(), "replay"), program_of(shape));
}

TEST(FaultInjection, WritesDownWhatARankKnowsThatIsAloneWithoutRankZero) {
  const TrainingCase shape{"1F1B", 2, 3};
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("replay.json");
  const Tally tally = stop_rank_zero(shape, path);
  EXPECT_THAT(tally.text, MatchesRegex(".*; rank 1 \\(pid [0-9]+ at 127.0.0.1\\) waits at step "
                                       "[0-9]+ \\(1F[0-9]\\) for rank 0 \\(pid [0-9]+ at "
                                       "127.0.0.1\\) to send the activations of microbatch [0-9]"));
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto json = nlohmann::json::parse(contents_of(own_replay_path(path, 1)));
  EXPECT_THAT(json.at("reason").get<std::string>(), HasSubstr("rank 0 (pid "));
  EXPECT_EQ(json.at("ranks")[0].at("state"), "silent");
  EXPECT_EQ(json.at("ranks")[1].at("state"), "waiting");
  EXPECT_EQ(json.at("ranks")[1].at("waits_for")[0].at("rank"), 0);
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
  // The death may be known before there is a folder.
  EXPECT_TRUE(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock
