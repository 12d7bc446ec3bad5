#include "penstock/run/world/store_clients.h"

#include <algorithm>
#include <array>
#include <cstdint>
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
#include "tests/run/world/listening_port.h"

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

struct Connection {
  Socket client;
  Socket server;
};

Connection connect_to(const ListeningPort& port) {
  Socket client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port.number()));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(client.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  return {std::move(client),
          Socket(accept4(port.socket_descriptor(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(StoreClients, KnowAConnectionByOneNameAtBothEnds) {
  const ListeningPort port;
  const auto connection = connect_to(port);
  const std::vector<ConnectionEnd> own = own_ends_towards_port(port.number());
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_THAT(own.front(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(open_ends_at_port(port.number()), ElementsAre(own.front()));
}

TEST(StoreClients, TellOfEachRankOnceThatHangsUp) {
  const ListeningPort port;
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::vector<ConnectionEnd>> ends = {{}};  // rank 0 serves
  std::set<ConnectionEnd> known;
  for (int rank = 1; rank < 4; ++rank) {
    connections.push_back(std::make_unique<Connection>(connect_to(port)));
    std::vector<ConnectionEnd> own;
    for (const ConnectionEnd& end : own_ends_towards_port(port.number())) {
      if (known.insert(end).second) own.push_back(end);
    }
    ends.push_back(own);
  }
  ends[3] = {"10.1.2.3:4567"};  // what it is called on its own side of a router
  StoreClients clients(port.number());
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
  const ListeningPort port;
  const auto stranger = connect_to(port);
  std::vector<Connection> others;
  for (int index = 0; index < kOthers; ++index) others.push_back(connect_to(port));
  stranger.client.say("half");
  ASSERT_EQ(stranger.server.hear(), "half");
  for (const auto& other : others) other.client.say("all");
  std::thread server([&] {
    EXPECT_EQ(stranger.server.hear(), "");
    for (const auto& other : others) EXPECT_EQ(other.server.hear(), "all");
  });
  hang_up_on_silent_at_port(port.number());
  server.join();
  EXPECT_THAT(open_ends_at_port(port.number()), SizeIs(kOthers));
}

}  // namespace
}  // namespace penstock
