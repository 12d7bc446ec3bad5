#include "penstock/run/world/internal/server_sockets.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace penstock {
namespace {

constexpr int kNone = -1;

// The port that a socket of this process has on its own side; kNone if there is none.
int own_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return kNone;
  switch (address.ss_family) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    default:
      return kNone;
  }
}

// Calls `use` with every socket of this process that has `port` on its own side.
template <typename Use>
void for_each_socket_at_port(int port, const Use& use) {
  std::error_code error;  // a file that was closed meanwhile is none of ours
  for (auto file = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const int descriptor = std::atoi(file->path().filename().c_str());
    if (own_port(descriptor) == port) use(descriptor);
  }
}

bool has_said_something(int connection) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_bytes_received > 0;
}

bool has_more_to_read(int connection) {
  int num_bytes = 0;
  return ioctl(connection, FIONREAD, &num_bytes) != 0 || num_bytes > 0;
}

}  // namespace

void limit_waits_at_port(int port, std::chrono::milliseconds limit) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(limit);
  const timeval time{.tv_sec = whole.count(),
                     .tv_usec = std::chrono::microseconds(limit - whole).count()};
  for_each_socket_at_port(port, [&time](int descriptor) {
    // What listens passes both on to the connections that it accepts.
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  });
}

void hang_up_on_silent_at_port(int port) {
  for_each_socket_at_port(port, [](int descriptor) {
    if (has_said_something(descriptor) && !has_more_to_read(descriptor)) {
      shutdown(descriptor, SHUT_RDWR);
    }
  });
}

}  // namespace penstock
