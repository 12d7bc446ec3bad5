#include "penstock/run/world/internal/server_sockets.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <netinet/in.h>
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

}  // namespace

void limit_waits_at_port(int port, std::chrono::milliseconds limit) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(limit);
  const timeval time{.tv_sec = whole.count(),
                     .tv_usec = std::chrono::microseconds(limit - whole).count()};
  std::error_code error;  // a file that was closed meanwhile is none of ours
  for (auto file = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const int descriptor = std::atoi(file->path().filename().c_str());
    if (own_port(descriptor) != port) continue;
    // What listens passes both on to the connections that it accepts.
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  }
}

}  // namespace penstock
