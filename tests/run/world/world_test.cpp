#include "penstock/run/world/world.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/world/internal/local_token.h"
#include "tests/run/world/listening_port.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A folder of its own for the files in which ranks meet.
class WorldTest : public ::testing::Test {
 protected:
  WorldOptions in_file(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .local_rank = rank,
            .store_file = folder_.path("store"),
            .timeout = std::chrono::minutes(1)};
  }

 private:
  testing::TemporaryFolder folder_;
};

using Task = std::function<void(World&)>;

// What joining ends in for each rank: the error, or empty. Ranks are threads here, for all that
// they share is the store.
std::vector<std::string> join_all(const std::vector<WorldOptions>& ranks, const Task& task = {}) {
  std::vector<std::future<std::string>> futures;
  for (const WorldOptions& options : ranks) {
    futures.push_back(std::async(std::launch::async, [options, task]() -> std::string {
      try {
        World world(options);
        if (task) task(world);
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> ends;
  for (auto& future : futures) ends.push_back(future.get());
  return ends;
}

TEST_F(WorldTest, TellsEachRankAboutAllOthers) {
  const auto ends = join_all({in_file(0, 3), in_file(1, 3), in_file(2, 3)}, [](World& world) {
    EXPECT_EQ(world.size(), 3);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(world.member(rank).local_rank, rank);
      EXPECT_EQ(world.member(rank).process_id, getpid());
      EXPECT_EQ(world.member(rank).address, "127.0.0.1");
    }
    EXPECT_EQ(world.processes_on_this_host().size(), 3U);
    const std::vector<std::string> told =
        world.exchange(world.everyone(), "greetings", fmt::format("from {}", world.rank()));
    EXPECT_THAT(told, ElementsAre("from 0", "from 1", "from 2"));
    EXPECT_EQ(world.next_count("a"), 0);
    EXPECT_EQ(world.next_count("b"), 0);
    EXPECT_EQ(world.next_count("a"), 1);
  });
  EXPECT_THAT(ends, ElementsAre("", "", ""));
}

TEST_F(WorldTest, MeetsAtAPort) {
  ListeningPort port;
  const auto at_port = [&](int rank) {
    return WorldOptions{.rank = rank, .size = 2, .master_port = port.number()};
  };
  port.free();
  // Rank 0 listens until rank 1 has what it asked for.
  const auto ends = join_all({at_port(1), at_port(0)}, [](World& world) {
    EXPECT_EQ(world.member(1 - world.rank()).address, "127.0.0.1");
    world.exchange(world.everyone(), "topic", "");
    world.exchange(world.everyone(), "read", "");
    world.forget("topic");
    EXPECT_FALSE(world.store().find(world.rank() == 0 ? "topic/0" : "topic/1"));
    world.exchange(world.everyone(), "end", "");
    if (world.rank() == 1) return world.store().set("seen", "");
    while (!world.store().find("seen")) {
    }
  });
  EXPECT_THAT(ends, ElementsAre("", ""));
}

TEST_F(WorldTest, NamesTheRanksThatAreMissing) {
  std::vector<WorldOptions> ranks = {in_file(0, 4), in_file(2, 4)};
  for (WorldOptions& options : ranks) options.timeout = std::chrono::milliseconds(300);
  const std::string expected = "waited 0.3 s for ranks 1 and 3 of 4 to join";
  EXPECT_THAT(join_all(ranks), ElementsAre(expected, expected));
}

// Hosts notice one after another that a rank has failed.
TEST_F(WorldTest, JoinsTheAttemptThatIsItsOwn) {
  ListeningPort port;
  const auto of_attempt = [&](int attempt, int rank) {
    return WorldOptions{.rank = rank,
                        .size = 2,
                        .master_port = port.number(),
                        .token = "secret",
                        .attempt = attempt};
  };
  port.free();
  // Rank 0 listens until rank 1 has seen it.
  const Task meet = [](World& world) {
    if (world.rank() == 1) return world.store().set("seen", "");
    while (!world.store().find("seen")) {
    }
  };
  auto early = std::async(std::launch::async, [&] { return join_all({of_attempt(1, 1)}, meet); });
  EXPECT_THAT(join_all({of_attempt(0, 0)}), ElementsAre("rank 1 has failed and was started again"));
  EXPECT_THAT(join_all({of_attempt(1, 0)}, meet), ElementsAre(""));
  EXPECT_THAT(early.get(), ElementsAre(""));
}

TEST_F(WorldTest, SaysThatTheJobIsOfALaterAttempt) {
  ListeningPort port;
  const WorldOptions first{
      .rank = 0, .size = 2, .master_port = port.number(), .token = "secret", .attempt = 2};
  port.free();
  const Store store(first);
  WorldOptions late = first;
  late.rank = 1;
  late.attempt = 1;
  EXPECT_THAT(join_all({late}),
              ElementsAre("rank 1 is of restart 1 of the job, but rank 0 is of restart 2 already; "
                          "it can join when it is started again, too"));
}

// libtorch 1.13's own wait for the others ends silently here.
TEST_F(WorldTest, NamesTheRanksThatAreMissingAtAPort) {
  ListeningPort port;
  const WorldOptions alone{.rank = 0,
                           .size = 2,
                           .master_port = port.number(),
                           .timeout = std::chrono::milliseconds(100)};
  port.free();
  EXPECT_THAT(join_all({alone}), ElementsAre("waited 0.1 s for rank 1 of 2 to join"));
}

TEST_F(WorldTest, TellsEveryoneThatARankIsThereTwice) {
  const auto ends = join_all({in_file(0, 3), in_file(1, 3), in_file(1, 3)});
  for (const std::string& end : ends) {
    EXPECT_THAT(end, StartsWith("two processes say that they are rank 1 of 3, or \""));
    EXPECT_THAT(end, HasSubstr("is left from an earlier run"));
  }
}

TEST_F(WorldTest, TellsEveryoneThatSizesDiffer) {
  const auto ends = join_all({in_file(0, 3), in_file(1, 3), in_file(2, 4)});
  for (const std::string& end : ends) {
    EXPECT_THAT(end, HasSubstr("was started for a world of"));
    EXPECT_THAT(end, HasSubstr("rank 2"));
  }
}

TEST_F(WorldTest, TellsEveryoneThatARankIsOfAnotherVersion) {
  auto end = std::async(std::launch::async, [&] { return join_all({in_file(0, 2)}).front(); });
  Store other(in_file(1, 2));
  other.set("world/member/1", R"({"format": 2, "whatever": "else"})");
  const std::string expected = "rank 1 runs another version of Penstock than rank 0";
  EXPECT_EQ(end.get(), expected);
  EXPECT_EQ(other.find("world/refusal"), expected);
}

TEST_F(WorldTest, EndsTheJoiningWhenARankIsKnownToBeGone) {
  WorldOptions first = in_file(0, 2);
  first.look = [] { throw Error("rank 1 has died"); };
  EXPECT_THAT(join_all({first}), ElementsAre("rank 1 has died"));
}

TEST_F(WorldTest, SaysWhyARankDoesNotCome) {
  WorldOptions first = in_file(0, 2);
  first.look = [&] {
    refuse_world(in_file(1, 2), "rank 1 has no data");
    throw Error("rank 1 has died");
  };
  EXPECT_THAT(join_all({first}), ElementsAre("rank 1 has no data"));
}

TEST_F(WorldTest, SaysThatThePortIsInUse) {
  const ListeningPort port;
  const WorldOptions master{.rank = 0, .size = 2, .master_port = port.number()};
  EXPECT_THAT(join_all({master}),
              ElementsAre(fmt::format(
                  "rank 0 cannot listen on 127.0.0.1:{}: the port is in use, or not allowed; "
                  "choose another one for all ranks (MASTER_PORT)",
                  port.number())));
}

TEST_F(WorldTest, SaysThatNobodyListens) {
  ListeningPort port;
  const WorldOptions lonely{
      .rank = 1, .size = 2, .master_port = port.number(), .timeout = std::chrono::milliseconds(50)};
  port.free();
  EXPECT_THAT(
      join_all({lonely}),
      ElementsAre(fmt::format("rank 1 could not reach rank 0 at 127.0.0.1:{} within 0.05 s: "
                              "Connection refused; look whether rank 0 runs, and whether "
                              "MASTER_ADDR and MASTER_PORT are those of its host",
                              port.number())));
}

// As if rank 0 had found its port in use, and ended.
TEST_F(WorldTest, SaysThatWhoListensIsNotRankZero) {
  const ListeningPort port;
  const WorldOptions lonely{
      .rank = 1, .size = 2, .master_port = port.number(), .timeout = std::chrono::milliseconds(50)};
  const std::vector<std::string> ends = join_all({lonely});
  EXPECT_THAT(ends[0],
              StartsWith(fmt::format("rank 1 got no answer at 127.0.0.1:{}, where it looks for "
                                     "rank 0 (",
                                     port.number())));
  EXPECT_THAT(ends[0], HasSubstr("its error says why, or another program has this port: choose "
                                 "another one for all ranks (MASTER_PORT)"));
}

// An address of this host that others can connect to; empty if there is none.
std::string outer_address() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> addresses(found, freeifaddrs);
  for (const ifaddrs* address = found; address != nullptr; address = address->ifa_next) {
    if (address->ifa_addr == nullptr || address->ifa_addr->sa_family != AF_INET) continue;
    if ((address->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text = {};
    const auto* const internet = reinterpret_cast<const sockaddr_in*>(address->ifa_addr);
    inet_ntop(AF_INET, &internet->sin_addr, text.data(), text.size());
    return text.data();
  }
  return {};
}

// libtorch 1.13 listens on all addresses, also if it is told 127.0.0.1. A rank that has no token
// must not be open to everybody for that.
TEST_F(WorldTest, TakesNoStrangersWhoComeFromAnotherAddress) {
  const std::string address = outer_address();
  if (address.empty()) GTEST_SKIP() << "this host has no address but loopback";
  ListeningPort port;
  const WorldOptions master{.rank = 0,
                            .size = 2,
                            .master_port = port.number(),
                            .timeout = std::chrono::milliseconds(1500)};
  port.free();
  auto end = std::async(std::launch::async, [&] { return join_all({master}).front(); });
  while (!std::filesystem::exists(local_token_path(local_token_folder(), port.number()))) {
    ASSERT_EQ(end.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout) << end.get();
  }
  const StorePtr everything =
      make_tcp_store(address, port.number(), false, std::chrono::milliseconds(1500));
  greet(*everything);
  for (const char* token : {"", "guess"}) {
    c10d::PrefixStore stranger(std::string("penstock/") + token, everything);
    EXPECT_FALSE(stranger.check({"world/claims/0"})) << "it sees the job";
    const nlohmann::json member = {{"format", 1},          {"size", 2},    {"host", "b"},
                                   {"address", "1.2.3.4"}, {"process", 1}, {"local_rank", 0}};
    const std::string text = "=" + member.dump();
    stranger.set("world/member/1", std::vector<std::uint8_t>(text.begin(), text.end()));
    stranger.set("world/ready/1", std::vector<std::uint8_t>{'='});
  }
  EXPECT_EQ(end.get(), "waited 1.5 s for rank 1 of 2 to join");
}

TEST_F(WorldTest, LeavesNoTokenBehind) {
  ListeningPort port;
  const auto path = local_token_path(local_token_folder(), port.number());
  const auto at_port = [&](int rank) {
    return WorldOptions{.rank = rank, .size = 2, .master_port = port.number()};
  };
  port.free();
  const auto ends = join_all({at_port(0), at_port(1)}, [&](World& world) {
    world.exchange(world.everyone(), "all", "");
    if (world.rank() == 0) {
      EXPECT_FALSE(std::filesystem::exists(path));
    }
    world.exchange(world.everyone(), "end", "");
    if (world.rank() == 1) return world.store().set("seen", "");
    while (!world.store().find("seen")) {
    }
  });
  EXPECT_THAT(ends, ElementsAre("", ""));
}

TEST_F(WorldTest, SaysThatOnlyRankZeroHasAToken) {
  ListeningPort port;
  WorldOptions master{.rank = 0,
                      .size = 2,
                      .master_port = port.number(),
                      .token = "secret",
                      .timeout = std::chrono::milliseconds(400)};
  WorldOptions other = master;
  other.rank = 1;
  other.token.clear();
  other.timeout = std::chrono::milliseconds(200);
  port.free();
  const auto ends = join_all({master, other});
  EXPECT_EQ(ends[0], "waited 0.4 s for rank 1 of 2 to join with the same token");
  EXPECT_THAT(ends[1], StartsWith("rank 1 has no token, and found none within 0.2 s in \"/tmp/"));
  EXPECT_THAT(ends[1], HasSubstr("rank 0 may have been given one, be of another user, or see "
                                 "another /tmp: set PENSTOCK_TOKEN to the same random text"));
}

TEST_F(WorldTest, NamesTheRanksThatDoNotComeToAnExchange) {
  std::vector<WorldOptions> ranks = {in_file(0, 2), in_file(1, 2)};
  ranks[0].timeout = std::chrono::seconds(1);
  const auto ends = join_all(ranks, [](World& world) {
    if (world.rank() == 0) world.exchange(world.everyone(), "roll call", "");
  });
  EXPECT_THAT(ends, ElementsAre("waited 1 s for rank 1, which did not come to \"roll call\"", ""));
}

TEST_F(WorldTest, WaitsAsLongAsAnExchangeIsGiven) {
  const auto ends = join_all({in_file(0, 2), in_file(1, 2)}, [](World& world) {
    if (world.rank() == 1) return;
    world.exchange(world.everyone(), "roll call", "", {.timeout = std::chrono::milliseconds(20)});
  });
  EXPECT_THAT(ends,
              ElementsAre("waited 0.02 s for rank 1, which did not come to \"roll call\"", ""));
}

TEST_F(WorldTest, EndsAnExchangeWhenTheCallerKnowsBetter) {
  const auto ends = join_all({in_file(0, 2), in_file(1, 2)}, [](World& world) {
    if (world.rank() == 1) return;
    world.exchange(world.everyone(), "roll call", "",
                   {.look = [] { throw WorldError("rank 1 is gone"); }});
  });
  EXPECT_THAT(ends, ElementsAre("rank 1 is gone", ""));
}

TEST(WorldOptions, RefusesRanksThatAreNotThere) {
  EXPECT_THAT(join_all({{.rank = 2, .size = 2}}),
              ElementsAre("there is no rank 2 in a world of 2 ranks"));
  EXPECT_THAT(join_all({{.rank = 0, .size = 0}}),
              ElementsAre("a world has at least 1 rank, not 0"));
}

TEST(WorldOptions, NeedNoMeetingPlaceForOneRank) {
  World world(WorldOptions{});
  EXPECT_THAT(world.exchange(world.everyone(), "topic", "value"), ElementsAre("value"));
}

}  // namespace
}  // namespace penstock
