#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "penstock/run/threads/doorbell.h"
#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/threads/rank_threads.h"

namespace penstock {
namespace {

WaitPolicy parked_at_once() {
  return {.spin = std::chrono::nanoseconds::zero(), .deadline = std::chrono::hours(1)};
}

TEST(Doorbell, WakesAThreadHoweverItWaits) {
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(200'000)}) {
    Doorbell there;
    Doorbell back;
    std::atomic<int> count = 0;
    const WaitPolicy policy{.spin = spin, .deadline = std::chrono::hours(1)};
    std::thread other([&] {
      for (int turn = 1; turn < 2000; turn += 2) {
        there.wait([&] { return count.load() == turn; }, policy);
        count.store(turn + 1);
        back.ring();
      }
    });
    for (int turn = 0; turn < 2000; turn += 2) {
      count.store(turn + 1);
      there.ring();
      back.wait([&] { return count.load() == turn + 2; }, policy);
    }
    other.join();
    EXPECT_EQ(count.load(), 2000);
  }
}

TEST(Doorbell, GivesUpAtTheDeadline) {
  Doorbell doorbell;
  EXPECT_FALSE(doorbell.wait([] { return false; }, {.spin = std::chrono::microseconds(1),
                                                    .deadline = std::chrono::milliseconds(5)}));
  EXPECT_TRUE(doorbell.wait([] { return true; }, {.deadline = std::chrono::nanoseconds(0)}));
}

TEST(WaitPolicy, SpinsOnlyIfEveryThreadHasACore) {
  const std::vector<int> cores = allowed_cores();
  const auto spins = [](std::size_t num_threads) {
    return wait_policy_for(static_cast<int>(num_threads), std::chrono::seconds(1)).spin.count() > 0;
  };
  EXPECT_TRUE(spins(cores.size()));
  EXPECT_FALSE(spins(cores.size() + 1));
  const PinnedThread pinned(cores.front());  // as "taskset -c 0" does, whatever the machine has
  EXPECT_TRUE(spins(1));
  EXPECT_FALSE(spins(2));
}

TEST(RankThreads, RunsEveryRankOnAThreadOfItsOwn) {
  RankThreads threads(4, {.wait = parked_at_once()});
  for (int round = 0; round < 50; ++round) {
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::vector<int> calls(4, 0);
    threads.run([&](int rank) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
      ++calls[static_cast<std::size_t>(rank)];
    });
    EXPECT_EQ(ids.size(), 4U);
    EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
    EXPECT_EQ(calls, std::vector<int>(4, 1));
  }
}

TEST(RankThreads, GivesEachRankItsIntraOpThreadsAndRestoresTheCallers) {
  const int before = at::get_num_threads();
  RankThreads threads(2, {.wait = parked_at_once(), .intra_op_threads = before + 2});
  std::vector<int> seen(2, 0);
  threads.run([&](int rank) { seen[static_cast<std::size_t>(rank)] = at::get_num_threads(); });
  EXPECT_EQ(seen, std::vector<int>(2, before + 2));
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(RankThreads, KeepsEachRankOnACoreAndTheCallerOnlyMeanwhile) {
  const std::vector<int> cores = allowed_cores();
  const auto num_ranks = static_cast<int>(std::min<std::size_t>(cores.size(), 4));
  RankThreads threads(num_ranks, {.wait = parked_at_once(), .pins_threads = true});
  std::vector<std::vector<int>> seen(static_cast<std::size_t>(num_ranks));
  threads.run([&](int rank) { seen[static_cast<std::size_t>(rank)] = allowed_cores(); });
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    EXPECT_EQ(seen[rank], std::vector<int>{cores[rank]}) << "rank " << rank;
  }
  EXPECT_EQ(allowed_cores(), cores);
}

TEST(RankThreads, LeavesTheFirstCoresToOtherProcesses) {
  const std::vector<int> cores = allowed_cores();
  const auto last = static_cast<int>(cores.size()) - 1;
  const auto cores_of = [](int first) {
    std::vector<int> seen;
    RankThreads(1, {.wait = parked_at_once(), .pins_threads = true, .first_core = first})
        .run([&](int /*rank*/) { seen = allowed_cores(); });
    return seen;
  };
  EXPECT_EQ(cores_of(last), std::vector<int>{cores.back()});
  EXPECT_EQ(cores_of(last + 1), cores) << "there is none for it";
}

TEST(RankThreads, LeavesRanksThatOutnumberCoresToTheSystem) {
  const std::vector<int> cores = allowed_cores();
  const auto num_ranks = static_cast<int>(cores.size()) + 1;
  RankThreads threads(num_ranks, {.wait = parked_at_once(), .pins_threads = true});
  std::vector<std::vector<int>> seen(static_cast<std::size_t>(num_ranks));
  threads.run([&](int rank) { seen[static_cast<std::size_t>(rank)] = allowed_cores(); });
  EXPECT_EQ(seen, std::vector<std::vector<int>>(static_cast<std::size_t>(num_ranks), cores));
}

}  // namespace
}  // namespace penstock
