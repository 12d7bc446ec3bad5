#include <chrono>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/bench/internal/round_trips.h"
#include "penstock/run/libtorch/c10d_backend.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/rank_processes.h"
#include "tests/run/support/store_backend.h"
#include "tests/run/transport/transport_ways.h"

// Which way messages take, and who is refused one.
namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(OpenTransport, ChoosesByItself) {
  run_in_forks(3, [](const WorldOptions& world_options) {
    World world(world_options);
    const std::unique_ptr<Transport> transport =
        open_transport(world, world.everyone(), {.extent = kExtent});
    const int next = (world.rank() + 1) % 3;
    const int before = (world.rank() + 2) % 3;
    Message message = {world.rank()};
    transport->send(next, activation(next, 0), message);
    transport->receive(before, activation(world.rank(), 0), message);
    EXPECT_EQ(message.front().toInt(), before);
  });
}

// Rank 2 is on a host of its own, as far as names tell. Where that is not allowed, all share one.
TEST(OpenTransport, TakesEachPairsOwnWay) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  run_in_forks(3, [](const WorldOptions& world_options) {
    const std::string name = "elsewhere";
    const bool is_alone = world_options.rank == 2 && unshare(CLONE_NEWUTS) == 0 &&
                          sethostname(name.data(), name.size()) == 0;
    World world(world_options);
    EXPECT_TRUE(!is_alone || world.processes_on_this_host().size() == 1);
    const std::unique_ptr<Transport> transport =
        open_transport(world, world.everyone(), {.extent = kExtent});
    for (int step = 0; step < 10; ++step) {
      transport->begin_step(step);
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == world.rank()) continue;
        Message message = {10 * world.rank() + step};
        transport->send(peer, activation(peer, world.rank()), message);
      }
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == world.rank()) continue;
        Message message;
        transport->receive(peer, activation(world.rank(), peer), message);
        EXPECT_EQ(message.front().toInt(), 10 * peer + step);
      }
    }
  });
}

TEST(OpenTransport, NeedsABackendThatIsToBeTheProgramsOwn) {
  run_in_forks(1, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions options{.kind = TransportKind::OwnBackend, .extent = kExtent};
    EXPECT_EQ(message_of([&] { open_transport(world, world.everyone(), options); }),
              "a transport over a backend of the program's own needs a function that makes it: set "
              "make_backend");
    options.make_backend = [](const auto&, int, int) { return BackendPtr(); };
    EXPECT_EQ(message_of([&] { open_transport(world, world.everyone(), options); }),
              "no backend was made: the function that makes it returned nothing");
  });
}

// Which must not be polled, as other backends are, and has messages of others as well.
TEST(OpenTransport, TakesAGlooThatTheProgramUsesItself) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    BareGloo gloo(world, "gloo of the program");
    const auto round_trips = gloo.round_trips({.bytes = 4});
    const std::unique_ptr<Transport> transport =
        open_transport(world, world.everyone(),
                       {.kind = TransportKind::OwnBackend,
                        .extent = kExtent,
                        .make_backend = gloo.maker(),
                        .deadline = std::chrono::seconds(30)});
    const int peer = 1 - world.rank();
    for (int step = 0; step < 10; ++step) {
      transport->begin_step(step);
      transport->expect(peer, activation(world.rank(), 0));
      round_trips->run(1);
      Message message = {10 * world.rank() + step};
      transport->send(peer, activation(peer, 0), message);
      round_trips->run(1);
      transport->receive(peer, activation(world.rank(), 0), message);
      EXPECT_EQ(message.front().toInt(), 10 * peer + step);
    }
  });
}

TEST(OpenTransport, RefusesRanksThatMakeNoBackendOfTheirOwn) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions options{.extent = kExtent};
    if (world.rank() == 1) options.make_backend = store_backend();
    EXPECT_THAT(message_of([&] { open_transport(world, world.everyone(), options); }),
                HasSubstr("was told to use another kind of transport than rank "));
  });
}

TEST(OpenTransport, RefusesRanksOutsideTheGroup) {
  World world(WorldOptions{});
  EXPECT_EQ(message_of([&] { open_transport(world, {.name = "others", .ranks = {1}}, {}); }),
            "rank 0 of the world is not in the group \"others\"");
}

}  // namespace
}  // namespace penstock
