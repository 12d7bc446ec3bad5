#include "penstock/run/processes/internal/monitor.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/world/world.h"
#include "tests/run/processes/forked_ranks.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class NoTransport final : public Transport {
 public:
  void begin_step(std::int64_t /*number*/) override {}
  void send(int /*to_rank*/, MessageKey /*key*/, Message& /*message*/) override {}
  void expect(int /*from_rank*/, MessageKey /*key*/) override {}
  void receive(int /*from_rank*/, MessageKey /*key*/, Message& /*message*/) override {}
  void stop() noexcept override {}
};

// A monitor, and a rank of which it is told what the test says.
class WatchedRank {
 public:
  explicit WatchedRank(const WorldOptions& options)
      : world_(options),
        monitor_(
            world_,
            {.group = world_.everyone(), .replay_path = {}, .deadline = std::chrono::seconds(20)}),
        board_(options.size) {}

  World& world() { return world_; }
  Monitor& monitor() { return monitor_; }

  // From now on the rank waits for another one, in its second action.
  void begin_to_wait(milliseconds deadline) {
    board_.set_finished(world_.rank(), 1);
    board_.set_waiting(world_.rank(), true);
    monitor_.begin_step(
        {.program = program_, .progress = &board_, .transport = &transport_, .deadline = deadline});
  }

  void go_on(int num_actions) { board_.set_finished(world_.rank(), num_actions); }

  // Until a rank has told this under its key.
  void wait_for(const std::string& key) {
    while (!world_.store().find(key)) {
      monitor_.require_healthy();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  World world_;
  Monitor monitor_;
  ProgressBoard board_;
  NoTransport transport_;
  std::shared_ptr<const Schedule> program_ = std::make_shared<const Schedule>(
      lower(make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 2}), {.sharding = false}));
};

// Who leaves while others still connect could break their connections.
TEST(Monitor, LetsNobodyGoOnBeforeAllAreConnected) {
  const std::vector<RankEnd> ends = run_forked(3, [](const WorldOptions& options) -> std::string {
    WatchedRank rank(options);
    rank.monitor().connect("test", std::chrono::seconds(20), [&] {
      if (rank.world().rank() != 1) return;
      std::this_thread::sleep_for(milliseconds(200));
      rank.world().store().set("rank 1 is connected", "");
    });
    return rank.world().store().find("rank 1 is connected") ? "after it" : "before it";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "after it");
}

// A file store keeps all that was ever written.
TEST(Monitor, DoesNotTellEveryMove) {
  const std::vector<RankEnd> ends = run_forked(2, [](const WorldOptions& options) {
    WatchedRank rank(options);
    rank.begin_to_wait(std::chrono::seconds(20));
    rank.wait_for(fmt::format("monitor/world/0/position/{}", options.rank));
    const auto size_before = std::filesystem::file_size(options.store_file);
    const auto end = std::chrono::steady_clock::now() + milliseconds(600);
    for (int num_actions = 1; std::chrono::steady_clock::now() < end; ++num_actions) {
      rank.go_on(num_actions);
      std::this_thread::sleep_for(milliseconds(1));
    }
    const auto growth = std::filesystem::file_size(options.store_file) - size_before;
    rank.monitor().end_step();
    return std::to_string(growth);
  });
  // Each of the two ranks may have told one position, and another at first; a dozen ticks, more.
  for (const RankEnd& end : ends) EXPECT_LT(std::stoi(end.text), 600) << "bytes";
}

// Rank 0 is stopped, rank 1 asks where it is; but then its step ends.
TEST(Monitor, JudgesTheNextStepAfreshIfAStallWasOverBeforeItWasReported) {
  const std::vector<RankEnd> ends =
      run_forked(2,
                 [](const WorldOptions& options) -> std::string {
                   WatchedRank rank(options);
                   if (options.rank == 0) {
                     kill(getpid(), SIGSTOP);
                     rank.wait_for("monitor/world/0/stall/0/over");
                     kill(getpid(), SIGSTOP);
                     return "was let go on";
                   }
                   rank.begin_to_wait(milliseconds(300));
                   rank.wait_for("monitor/world/0/stall/0");
                   rank.monitor().end_step();
                   kill(rank.world().member(0).process_id, SIGCONT);
                   rank.wait_for("monitor/world/0/stall/0/over");
                   rank.begin_to_wait(milliseconds(400));
                   for (;;) {
                     rank.monitor().require_healthy();
                     std::this_thread::sleep_for(milliseconds(1));
                   }
                 },
                 {.stopped_rank = 0, .patience = std::chrono::seconds(15)});
  EXPECT_TRUE(ends[1].has_thrown);
  EXPECT_THAT(ends[1].text, HasSubstr("no progress for 0.4 s, says rank 1 (pid "));
  EXPECT_THAT(ends[1].text, HasSubstr("does not answer"));
}

}  // namespace
}  // namespace penstock
