#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/processes/process_ranks.h"
#include "tests/run/processes/delayed_network.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

using Clock = std::chrono::steady_clock;

// A network, or null and the reason why this process may not make one.
struct MaybeNetwork {
  std::unique_ptr<DelayedNetwork> network;
  std::string problem;
};

MaybeNetwork make_network(const DelayedNetworkOptions& options) {
  try {
    return {std::make_unique<DelayedNetwork>(options), ""};
  } catch (const std::system_error& error) {
    return {nullptr, error.what()};
  }
}

sockaddr_in socket_address(const std::string& address, int port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

int make_socket() {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

// Runs `work` on a host.
template <typename Work>
auto on_host(const DelayedNetwork& network, int host, const Work& work) {
  return std::async(std::launch::async, [&network, host, work] {
    network.enter(host);
    return work();
  });
}

// A socket that listens on a host; connections are accepted by the kernel.
int listen_on(const DelayedNetwork& network, int host, int port) {
  return on_host(network, host,
                 [=] {
                   const int socket = make_socket();
                   const sockaddr_in address = socket_address(DelayedNetwork::address(host), port);
                   EXPECT_EQ(
                       bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
                       0);
                   EXPECT_EQ(::listen(socket, 4), 0);
                   return socket;
                 })
      .get();
}

int connect_from(const DelayedNetwork& network, int host, const sockaddr_in& address) {
  return on_host(network, host,
                 [=] {
                   const int socket = make_socket();
                   EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address),
                                     sizeof(address)),
                             0);
                   return socket;
                 })
      .get();
}

TEST(DelayedNetwork, TakesItsTimeForEveryTripAndByte) {
  constexpr int kPort = 7000;
  constexpr std::size_t kBytes = 500'000;
  const DelayedNetworkOptions options{
      .num_hosts = 2, .delay = std::chrono::milliseconds(3), .bytes_per_second = 5e6};
  const MaybeNetwork made = make_network(options);
  if (made.network == nullptr) GTEST_SKIP() << made.problem;
  const DelayedNetwork& network = *made.network;
  const int listener = listen_on(network, 0, kPort);
  const sockaddr_in address = socket_address(DelayedNetwork::address(0), kPort);

  close(connect_from(network, 1, address));  // asks for the hardware address as well
  const Clock::time_point start = Clock::now();
  const int sender = connect_from(network, 1, address);
  EXPECT_GE(Clock::now() - start, 2 * options.delay);

  close(accept(listener, nullptr, nullptr));
  const int receiver = accept(listener, nullptr, nullptr);
  const Clock::time_point sending = Clock::now();
  const auto sent = std::async(std::launch::async, [sender] {
    const std::string bytes(kBytes, 'x');
    EXPECT_EQ(send(sender, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t{kBytes});
    close(sender);
  });
  std::array<char, 1 << 16> buffer = {};
  std::size_t num_bytes = 0;
  for (ssize_t count = 1; count > 0; num_bytes += static_cast<std::size_t>(count)) {
    count = read(receiver, buffer.data(), buffer.size());
    ASSERT_GE(count, 0);
  }
  EXPECT_EQ(num_bytes, kBytes);
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - sending).count(),
            kBytes / options.bytes_per_second);
  close(receiver);
  close(listener);
}

TEST(DelayedNetwork, EndsWithWhoHasMadeIt) {
  if (const MaybeNetwork made = make_network({}); made.network == nullptr) {
    GTEST_SKIP() << made.problem;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // the switch becomes a child of this process
  std::array<int, 2> said = {};
  ASSERT_EQ(pipe(said.data()), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    const DelayedNetwork network({});
    const pid_t process = network.switch_process();
    [[maybe_unused]] const ssize_t written = write(said[1], &process, sizeof(process));
    kill(getpid(), SIGKILL);
  }
  pid_t process = -1;
  ASSERT_EQ(read(said[0], &process, sizeof(process)), ssize_t{sizeof(process)});
  waitpid(maker, nullptr, 0);
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  pollfd end{descriptor, POLLIN, 0};
  constexpr int kPatienceMs = 10'000;
  EXPECT_EQ(poll(&end, 1, kPatienceMs), 1) << "the switch is still there";
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  for (const int open : {said[0], said[1], descriptor}) close(open);
}

// Says when the first step is over.
class FirstStep final : public Observer {
 public:
  explicit FirstStep(int note) : note_(note) {}
  void step_ends() override {
    if (num_steps_++ > 0) return;
    [[maybe_unused]] const ssize_t count = write(note_, "x", 1);
  }

 private:
  int note_;
  int num_steps_ = 0;
};

TEST(Network, TrainsOverHostsAndSurvivesACutLink) {
  constexpr int kHosts = 3;
  constexpr int kSteps = 2;
  constexpr auto kDelay = std::chrono::milliseconds(2);
  const MaybeNetwork made = make_network({.num_hosts = kHosts, .delay = kDelay});
  if (made.network == nullptr) GTEST_SKIP() << made.problem;
  const DelayedNetwork& network = *made.network;
  const TrainingCase shape{"1F1B", kHosts, 6};
  std::array<int, 2> ready = {};
  ASSERT_EQ(pipe(ready.data()), 0);
  const auto rank = [&](const WorldOptions& options) {
    World world(options);
    const auto group =
        std::make_shared<ProcessRanks>(world, ProcessRankOptions{.transport = TransportKind::Gloo});
    const Clock::time_point start = Clock::now();
    std::string lines = train(mlp_model(), shape, {.group = group, .num_steps = kSteps});
    // A step of the first rank is over when a microbatch has been to the last one and back.
    if (options.rank == 0 && Clock::now() - start < kSteps * 2 * (kHosts - 1) * kDelay) {
      lines += "steps were faster than the network\n";
    }
    // What was trained so far is said before the link is cut.
    const std::string path = fmt::format("/tmp/penstock-network-{}-{}", getppid(), options.rank);
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    [[maybe_unused]] const ssize_t count = write(file, lines.data(), lines.size());
    close(file);
    for (;;) {
      train(mlp_model(), shape,
            {.group = group,
             .num_steps = 100'000,
             .deadline = std::chrono::seconds(2),
             .observers = {std::make_shared<FirstStep>(ready[1])}});
    }
    return lines;
  };
  std::string trained;
  const std::vector<RankEnd> ends =
      run_forked(kHosts, rank,
                 {.meeting = Meeting::Port,
                  .change =
                      [&](WorldOptions& options) {
                        network.enter(options.rank);
                        options.master_address = DelayedNetwork::address(0);
                        options.token = "only for members";
                      },
                  .meanwhile =
                      [&](const std::vector<pid_t>& /*processes*/) {
                        close(ready[1]);
                        std::array<char, 1> byte = {};
                        for (int host = 0; host < kHosts; ++host) {
                          ASSERT_EQ(read(ready[0], byte.data(), 1), 1) << "a rank has not trained";
                        }
                        network.cut(2);
                      },
                  .patience = std::chrono::seconds(40)});
  for (int host = 0; host < kHosts; ++host) {
    const std::string path = fmt::format("/tmp/penstock-network-{}-{}", getpid(), host);
    trained += contents_of(path);
    unlink(path.c_str());
    EXPECT_TRUE(ends[static_cast<std::size_t>(host)].has_thrown) << "rank " << host;
  }
  EXPECT_EQ(
      sorted_lines(trained),
      sorted_lines(run_apart([&] { return train(mlp_model(), shape, {.num_steps = kSteps}); })));
  for (const std::size_t host : {0U, 1U}) EXPECT_THAT(ends[host].text, HasSubstr("rank 2 (pid "));
  EXPECT_THAT(ends[2].text, HasSubstr("rank 0 (pid "));
}

// Connects to the port of a job and says something that is not meant for it.
int disturb(int port, const std::string& bytes) {
  const int socket = make_socket();
  const sockaddr_in address = socket_address("127.0.0.1", port);
  while (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
  }
  EXPECT_EQ(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  return socket;
}

// When a stranger speaks, seen from rank 0.
enum class Stranger { AtOnce, Later };

// Runs two ranks; the second one starts when `bytes` have been sent to the port of the first.
std::vector<RankEnd> run_disturbed(const std::string& bytes, std::chrono::milliseconds timeout,
                                   Stranger when = Stranger::Later) {
  std::array<int, 2> first = {};
  std::array<int, 2> go = {};
  EXPECT_EQ(pipe(first.data()), 0);
  EXPECT_EQ(pipe(go.data()), 0);
  const int port = free_port();
  int stranger = -1;
  const auto ends = run_forked(2,
                               [&](const WorldOptions& options) {
                                 if (options.rank == 1 || when == Stranger::AtOnce) {
                                   char byte = 0;
                                   [[maybe_unused]] const ssize_t count =
                                       read((options.rank == 1 ? go : first)[0], &byte, 1);
                                 }
                                 World world(options);
                                 const auto group =
                                     std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
                                 return train(mlp_model(), {"1F1B", 2, 4}, {.group = group});
                               },
                               {.meeting = Meeting::Port,
                                .change =
                                    [&](WorldOptions& options) {
                                      options.master_port = port;
                                      options.timeout = timeout;
                                      options.token = "only for members";
                                    },
                                .meanwhile =
                                    [&](const std::vector<pid_t>& /*processes*/) {
                                      [[maybe_unused]] ssize_t count = write(first[1], "x", 1);
                                      stranger = disturb(port, bytes);
                                      count = write(go[1], "x", 1);
                                    },
                                .patience = std::chrono::seconds(20)});
  for (const int descriptor : {first[0], first[1], go[0], go[1], stranger}) close(descriptor);
  return ends;
}

TEST(Rendezvous, IgnoresWhatIsNoMessage) {
  const std::string noise = "\xfe\x13\x37\xab\xff\xff\x80\x01 and so on";
  const std::string huge("\0\xff\xff\xff\xff\xff\xff\xff\x7f", 9);  // set, a key without end
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), noise, huge}) {
    for (const RankEnd& end : run_disturbed(bytes, std::chrono::seconds(3))) {
      EXPECT_TRUE(end.has_returned) << end.text << ", signal " << end.signal;
    }
  }
}

TEST(Rendezvous, GoesOnAfterHalfAMessage) {
  for (const Stranger when : {Stranger::AtOnce, Stranger::Later}) {
    SCOPED_TRACE(when == Stranger::AtOnce ? "at once" : "later");
    for (const RankEnd& end :
         run_disturbed(std::string("\0\x05", 2), std::chrono::seconds(15), when)) {
      EXPECT_TRUE(end.has_returned) << end.text << ", signal " << end.signal;
    }
  }
}

// Says what is no greeting, or not one that is expected, to everything that listens in this
// process. With libtorch 1.13 nothing does, once all are connected; newer ones have a port of
// Gloo's.
class DisturbsItself final : public Observer {
 public:
  void step_begins(const Schedule& /*program*/) override {
    constexpr int kManyFiles = 1024;
    for (int file = 0; file < kManyFiles; ++file) {
      int is_listening = 0;
      sockaddr_in address = {};
      socklen_t size = sizeof(is_listening);
      if (getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0) continue;
      size = sizeof(address);
      if (is_listening == 0 || getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        continue;
      for (char number = 0; number < 8; ++number) {
        disturb(ntohs(address.sin_port), number + std::string(7, '\0') + std::string(100, '\xab'));
      }
      disturb(ntohs(address.sin_port), "GET");
    }
  }
};

TEST(DataPort, HasNoUseForStrangersOnceAllAreConnected) {
  for (const RankEnd& end : run_forked(2, [](const WorldOptions& options) {
         World world(options);
         return train(mlp_model(), {"1F1B", 2, 4},
                      {.group = std::make_shared<ProcessRanks>(
                           world, ProcessRankOptions{.transport = TransportKind::Gloo}),
                       .observers = {std::make_shared<DisturbsItself>()}});
       })) {
    EXPECT_TRUE(end.has_returned) << end.text << ", signal " << end.signal;
  }
}

TEST(Rendezvous, TakesNobodyWithoutTheToken) {
  const std::vector<RankEnd> ends =
      run_forked(2,
                 [](const WorldOptions& options) {
                   World world(options);
                   return std::string("joined");
                 },
                 {.meeting = Meeting::Port, .change = [](WorldOptions& options) {
                    options.timeout = std::chrono::milliseconds(500);
                    options.token = options.rank == 0 ? "secret" : "guess";
                  }});
  EXPECT_EQ(ends[0].text, "waited 0.5 s for rank 1 of 2 to join with the same token");
  EXPECT_TRUE(ends[1].has_thrown);
}

TEST(Rendezvous, NeedsATokenWhereStrangersCanConnect) {
  const std::vector<RankEnd> ends =
      run_forked(1,
                 [](const WorldOptions& options) {
                   World world(options);
                   return std::string("joined");
                 },
                 {.meeting = Meeting::Port, .change = [](WorldOptions& options) {
                    options.size = 2;
                    options.master_address = "10.0.0.1";
                  }});
  EXPECT_EQ(ends[0].text,
            "ranks that meet at 10.0.0.1 need a token, so that nobody else can join; set "
            "PENSTOCK_TOKEN to the same random text for all of them");
}

}  // namespace
}  // namespace penstock
