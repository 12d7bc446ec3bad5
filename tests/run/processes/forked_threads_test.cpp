#include <atomic>
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "penstock/run/threads/rank_threads.h"
#include "tests/run/processes/forked_ranks.h"

namespace penstock {
namespace {

// libtorch makes its thread pool anew there as soon as a rank asks how many threads it may use.
TEST(RankThreads, StartTogetherInAForkedProcess) {
  constexpr int kRanks = 16;
  for (int process = 0; process < 30; ++process) {
    const std::string calls = run_apart([] {
      std::atomic<int> count = 0;
      RankThreads threads(kRanks, {.wait = {.spin = std::chrono::nanoseconds::zero()}});
      threads.run([&](int) { ++count; });
      return std::to_string(count);
    });
    ASSERT_EQ(calls, std::to_string(kRanks));
  }
}

}  // namespace
}  // namespace penstock
