#include "penstock/run/world/store_clients.h"

#include <array>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "penstock/run/world/internal/store_sockets.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) { EXPECT_GE(descriptor, 0); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  void say(const std::string& bytes) const {
    EXPECT_EQ(send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // What there is to be read, or, if there is nothing, what comes first; empty at the end.
  std::string hear() const {
    std::array<char, 64> bytes{};
    const ssize_t count = recv(descriptor_, bytes.data(), bytes.size(), 0);
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

 private:
  int descriptor_;
};

// Listens on loopback by its name in IPv6, as libtorch's store does.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    constexpr int kMany = 1000;
    EXPECT_EQ(bind(socket_.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(socket_.descriptor(), kMany), 0);
    socklen_t length = sizeof(address);
    getsockname(socket_.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin6_port);
  }
  int port() const { return port_; }

  struct Connection {
    Socket client;
    Socket server;
  };
  Connection connect() const {
    Socket client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(
        ::connect(client.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return {std::move(client),
            Socket(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC))};
  }

 private:
  Socket socket_;
  int port_ = 0;
};

TEST(StoreClients, KnowAConnectionByOneNameAtBothEnds) {
  const Listener listener;
  const auto connection = listener.connect();
  const std::vector<ConnectionEnd> own = own_ends_towards_port(listener.port());
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_THAT(own.front(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(open_ends_at_port(listener.port()), ElementsAre(own.front()));
}

TEST(StoreClients, TellOfEachRankOnceThatHangsUp) {
  const Listener listener;
  std::vector<std::unique_ptr<Listener::Connection>> connections;
  std::vector<std::vector<ConnectionEnd>> ends = {{}};  // rank 0 serves
  std::set<ConnectionEnd> known;
  for (int rank = 1; rank < 4; ++rank) {
    connections.push_back(std::make_unique<Listener::Connection>(listener.connect()));
    std::vector<ConnectionEnd> own;
    for (const ConnectionEnd& end : own_ends_towards_port(listener.port())) {
      if (known.insert(end).second) own.push_back(end);
    }
    ends.push_back(own);
  }
  ends[3] = {"10.1.2.3:4567"};  // what it is called on its own side of a router
  StoreClients clients(listener.port());
  clients.look();
  connections[1].reset();  // rank 2, before it has a name here
  clients.name(ends);
  EXPECT_THAT(clients.take_gone(), ElementsAre(2));
  EXPECT_THAT(clients.take_gone(), IsEmpty());
  const auto server_end = std::move(connections[0]->server);  // is still open
  connections.clear();
  EXPECT_THAT(clients.take_gone(), ElementsAre(1)) << "rank 3 cannot be seen";
  EXPECT_THAT(StoreClients().take_gone(), IsEmpty());
}

// The one that holds up the server is gone at once, and then the server reads what others have said
// in the meantime.
TEST(StoreSockets, HangUpOnWhoHasStoppedInTheMiddleAlone) {
  constexpr int kOthers = 200;
  const Listener listener;
  const auto stranger = listener.connect();
  std::vector<Listener::Connection> others;
  for (int index = 0; index < kOthers; ++index) others.push_back(listener.connect());
  stranger.client.say("half");
  ASSERT_EQ(stranger.server.hear(), "half");
  for (const auto& other : others) other.client.say("all");
  std::thread server([&] {
    EXPECT_EQ(stranger.server.hear(), "");
    for (const auto& other : others) EXPECT_EQ(other.server.hear(), "all");
  });
  hang_up_on_silent_at_port(listener.port());
  server.join();
  EXPECT_THAT(open_ends_at_port(listener.port()), SizeIs(kOthers));
}

}  // namespace
}  // namespace penstock
