#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/processes/process_ranks.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

bool run_command(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;  // NOLINT: for root, in a test
}

// A network of hosts: a network namespace each, on a bridge, with an address, latency and a limited
// rate.
class Network {
 public:
  explicit Network(int num_hosts)
      : num_hosts_(num_hosts), name_(fmt::format("ps{}", getpid() % 10000)) {
    is_there_ =
        run_command(fmt::format("ip link add {}b type bridge && ip link set {}b up", name_, name_));
    for (int host = 0; host < num_hosts; ++host) is_there_ = is_there_ && add_host(host);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  Network(Network&&) = delete;
  Network& operator=(Network&&) = delete;
  ~Network() {
    for (int host = 0; host < num_hosts_; ++host) run_command("ip netns del " + host_name(host));
    run_command(fmt::format("ip link del {}b", name_));
  }

  bool is_there() const { return is_there_; }
  std::string address(int host) const { return fmt::format("10.231.77.{}", host + 1); }

  // From now on this process is on that host.
  void enter(int host) const {
    const std::string path = "/var/run/netns/" + host_name(host);
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || setns(descriptor, CLONE_NEWNET) != 0) throw std::runtime_error("setns");
    close(descriptor);
  }

  void cut(int host) const {
    ASSERT_TRUE(run_command(fmt::format("ip link set {}{} down", name_, host)));
  }

 private:
  std::string host_name(int host) const { return fmt::format("{}h{}", name_, host); }
  bool add_host(int host) const {
    const std::string space = host_name(host);
    const std::string inside = "ip netns exec " + space + " ";
    const std::string link = fmt::format("{}{}", name_, host);
    return run_command("ip netns add " + space) &&
           run_command(
               fmt::format("ip link add {} type veth peer name eth0 netns {}", link, space)) &&
           run_command(fmt::format("ip link set {} master {}b up", link, name_)) &&
           run_command(inside + "ip link set lo up") &&
           run_command(fmt::format("{}ip addr add {}/24 dev eth0", inside, address(host))) &&
           run_command(inside + "ip link set eth0 up") &&
           (run_command(inside + "tc qdisc add dev eth0 root netem delay 1ms rate 200mbit") ||
            // Kernels without netem limit the rate, and with it the latency of what is queued.
            run_command(inside + "tc qdisc add dev eth0 root tbf rate 20mbit burst 16kb latency "
                                 "400ms"));
  }

  int num_hosts_;
  std::string name_;
  bool is_there_ = false;
};

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
  const Network network(kHosts);
  if (!network.is_there()) {
    GTEST_SKIP() << "network namespaces need root, and ip and tc of iproute2";
  }
  const TrainingCase shape{"1F1B", kHosts, 6};
  std::array<int, 2> ready = {};
  ASSERT_EQ(pipe(ready.data()), 0);
  const auto rank = [&](const WorldOptions& options) {
    World world(options);
    const auto group =
        std::make_shared<ProcessRanks>(world, ProcessRankOptions{.transport = TransportKind::Gloo});
    std::string lines = train(mlp_model(), shape, {.group = group});
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
  const std::vector<RankEnd> ends = run_forked(kHosts, rank,
                                               {.meeting = Meeting::Port,
                                                .change =
                                                    [&](WorldOptions& options) {
                                                      network.enter(options.rank);
                                                      options.master_address = network.address(0);
                                                      options.token = "only for members";
                                                    },
                                                .meanwhile =
                                                    [&](const std::vector<pid_t>& /*processes*/) {
                                                      close(ready[1]);
                                                      std::array<char, 1> byte = {};
                                                      for (int host = 0; host < kHosts; ++host) {
                                                        ASSERT_EQ(read(ready[0], byte.data(), 1), 1)
                                                            << "a rank has not trained";
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
  EXPECT_EQ(sorted_lines(trained),
            sorted_lines(run_apart([&] { return train(mlp_model(), shape, {}); })));
  for (const std::size_t host : {0U, 1U}) EXPECT_THAT(ends[host].text, HasSubstr("rank 2 (pid "));
  EXPECT_THAT(ends[2].text, HasSubstr("rank 0 (pid "));
}

// Connects to the port of a job and says something that is not meant for it.
int disturb(int port, const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  while (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
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

TEST(Rendezvous, IsNotHeldUpForeverByHalfAMessage) {
  // libtorch 1.13 serves one connection after the other, so this stops it; newer ones may go on.
  for (const Stranger when : {Stranger::AtOnce, Stranger::Later}) {
    SCOPED_TRACE(when == Stranger::AtOnce ? "at once" : "later");
    for (const RankEnd& end :
         run_disturbed(std::string("\0\x05", 2), std::chrono::seconds(1), when)) {
      EXPECT_TRUE(end.has_returned || end.has_thrown) << "hung, signal " << end.signal;
      EXPECT_EQ(end.signal, 0);
    }
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
