#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/libtorch/sigpipe_block.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/rank_processes.h"
#include "tests/run/transport/transport_ways.h"

// A process that writes to a connection which is gone gets SIGPIPE, and dies of it.
namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

std::set<int> connected_sockets() {
  std::set<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the interface of sockets
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0) {
      sockets.insert(descriptor);
    }
  }
  return sockets;
}

void wait_until_stopped(pid_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  for (;;) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find(") T ") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Rank 1 has room for `values` numbers, and is then stopped, so that it closes nothing. Rank 0
// sends them, to a connection that it cannot write to any more, from `Break` on.
enum class Break { BeforeTheSend, AfterTheSend };

void write_to_a_broken_connection(Break when, std::int64_t values) {
  run_in_forks(2, [&](const WorldOptions& world_options) {
    World world(world_options);
    const std::set<int> others = connected_sockets();
    const std::unique_ptr<Transport> transport =
        open_transport(world, world.everyone(),
                       {.kind = TransportKind::Gloo,
                        .extent = kExtent,
                        .fingerprint = 7,
                        .deadline = std::chrono::seconds(1),
                        .last_wait = std::chrono::milliseconds(100)});
    transport->begin_step(0);
    const auto send = [&] {
      Message message = {torch::ones({values})};
      transport->send(1, activation(1, 0), message);
    };
    if (world.rank() == 1) {
      receive_patiently(*transport, 0, activation(1, 0));
      transport->expect(0, activation(1, 0));
      world.exchange(world.everyone(), "process", std::to_string(getpid()));
      raise(SIGSTOP);
      return;
    }
    send();
    const pid_t peer = std::stoi(world.exchange(world.everyone(), "process", "").at(1));
    wait_until_stopped(peer);
    const auto break_connection = [&] {
      for (const int descriptor : connected_sockets()) {
        if (others.count(descriptor) == 0) shutdown(descriptor, SHUT_WR);
      }
    };
    if (when == Break::AfterTheSend) send();
    break_connection();
    std::thread let_go_on([peer] {  // which closes the connection in turn, so that Gloo notices
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      kill(peer, SIGCONT);
    });
    // Gloo may forget a send that was under way then.
    EXPECT_THAT(message_of([&] {
                  send();
                  send();
                }),
                AnyOf(StartsWith("lost the connection to rank 1, and with it the way for the "
                                 "activations of microbatch 0 for stage 1: "),
                      "waited 1 s for rank 1 to take the activations of microbatch 0 for stage 1"));
    let_go_on.join();
  });
}

TEST(GlooConnection, WhenBrokenIsAnErrorForTheThreadThatSends) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  write_to_a_broken_connection(Break::BeforeTheSend, 1);
}

// More than the kernel takes at once: the rest is written by the thread of Gloo.
TEST(GlooConnection, WhenBrokenIsAnErrorForTheThreadOfGloo) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  write_to_a_broken_connection(Break::AfterTheSend, 16 << 20);
}

TEST(GlooConnection, WhenBrokenIsAnErrorForAProgramThatIgnoresTheSignal) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  write_to_a_broken_connection(Break::BeforeTheSend, 1);
  std::signal(SIGPIPE, before);
}

bool is_blocked() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGPIPE) == 1;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

TEST(SigpipeBlock, SwallowsTheSignalAndLeavesNoTrace) {
  ASSERT_FALSE(is_blocked());
  {
    const SigpipeBlock block;
    raise(SIGPIPE);
    EXPECT_TRUE(is_pending());
  }
  EXPECT_FALSE(is_pending());
  EXPECT_FALSE(is_blocked());
}

TEST(SigpipeBlock, IsLeftToProgramsThatDoNotIgnoreTheSignal) {
  EXPECT_FALSE(is_sigpipe_ignored());
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_TRUE(is_sigpipe_ignored());
  std::signal(SIGPIPE, before);
  const SigpipeBlock block(false);
  EXPECT_FALSE(is_blocked());
}

TEST(SigpipeBlock, LeavesSignalsAloneThatWereRaisedBefore) {
  std::thread([] {
    const SigpipeBlock block_of_the_program;
    raise(SIGPIPE);
    {
      const SigpipeBlock block;
      raise(SIGPIPE);
    }
    EXPECT_TRUE(is_pending());
    EXPECT_TRUE(is_blocked());
  }).join();
}

}  // namespace
}  // namespace penstock
