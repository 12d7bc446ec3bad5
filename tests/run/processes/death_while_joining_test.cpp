#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "penstock/run/world/world.h"
#include "tests/run/processes/forked_ranks.h"

namespace penstock {
namespace {

using ::testing::ContainsRegex;

// Rank 2 comes late; rank 1, which has waited for it, is dead by then.
TEST(DeathWhileJoining, IsToldToAllOthersAtOnce) {
  std::array<int, 2> life = {};  // of rank 1: the other end is closed when it ends
  ASSERT_EQ(pipe(life.data()), 0);
  const std::vector<RankEnd> ends = run_forked(
      3,
      [&](const WorldOptions& options) {
        if (options.rank != 1) close(life[1]);
        if (options.rank == 2) {
          char byte = 0;
          EXPECT_EQ(read(life[0], &byte, 1), 0);
        }
        const World world(options);
        return std::string("all have joined");
      },
      {.meeting = Meeting::Port,
       .change =
           [](WorldOptions& options) {
             constexpr int kLooks = 20;  // by then it has told about itself, and rank 0 has looked
             if (options.rank != 1) return;
             options.look = [num_looks = 0]() mutable {
               if (++num_looks == kLooks) kill(getpid(), SIGKILL);
             };
           },
       .meanwhile = [&](const std::vector<pid_t>& /*processes*/) { close(life[1]); },
       .patience = std::chrono::seconds(20)});
  close(life[0]);
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_TRUE(ends[rank].has_thrown);
    EXPECT_THAT(
        ends[rank].text,
        ContainsRegex("^rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has died before all ranks were "
                      "ready$"));
  }
}

}  // namespace
}  // namespace penstock
