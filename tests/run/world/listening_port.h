#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace penstock {

// A port that was free, with a socket that listens there on all addresses, by their names in IPv6,
// as libtorch's store does.
class ListeningPort {
 public:
  ListeningPort() : socket_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    constexpr int kWaiting = 1;  // connections that nobody has accepted yet
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_, kWaiting), 0);
    socklen_t length = sizeof(address);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin6_port);
  }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;
  ListeningPort(ListeningPort&&) = delete;
  ListeningPort& operator=(ListeningPort&&) = delete;
  ~ListeningPort() { free(); }

  // Nobody listens there any more.
  void free() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  int number() const { return number_; }
  int socket_descriptor() const { return socket_; }

 private:
  int socket_;
  int number_ = 0;
};

}  // namespace penstock
