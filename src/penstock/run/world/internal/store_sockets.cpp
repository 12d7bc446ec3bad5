#include "penstock/run/world/internal/store_sockets.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace penstock {
namespace {

struct End {
  sockaddr_storage address{};
  int port = 0;

  explicit End(const sockaddr_storage& from) : address(from) {
    if (from.ss_family == AF_INET) {
      port = ntohs(reinterpret_cast<const sockaddr_in&>(from).sin_port);
    } else if (from.ss_family == AF_INET6) {
      port = ntohs(reinterpret_cast<const sockaddr_in6&>(from).sin6_port);
    }
  }
};

// What `get`, getsockname() or getpeername(), knows about a socket; nothing if it is not connected.
template <typename Get>
std::optional<End> end_of(int descriptor, const Get& get) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (get(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  return End(address);
}

// The same text at both ends: one may call IPv4 by its name in IPv6, and its interfaces as it
// likes.
ConnectionEnd text_of(const End& end) {
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(reinterpret_cast<const sockaddr*>(&end.address), sizeof(end.address), text.data(),
              text.size(), nullptr, 0, NI_NUMERICHOST);
  constexpr std::string_view kMapped = "::ffff:";
  std::string_view host = text.data();
  if (host.starts_with(kMapped)) host.remove_prefix(kMapped.size());
  return fmt::format("{}:{}", host.substr(0, host.find('%')), end.port);
}

// Calls `use` with every file of this process.
template <typename Use>
void for_each_file(const Use& use) {
  std::error_code error;  // a file that was closed meanwhile is none of ours
  for (auto file = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    use(std::atoi(file->path().filename().c_str()));
  }
}

// Calls `use` with every socket of this process that has `port` on its own side.
template <typename Use>
void for_each_socket_at_port(int port, const Use& use) {
  for_each_file([&](int descriptor) {
    const std::optional<End> own = end_of(descriptor, getsockname);
    if (own && own->port == port) use(descriptor);
  });
}

// What the kernel knows about a connection over TCP; nothing if it is none.
std::optional<tcp_info> info_of(int connection) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

// Neither end has hung up.
bool is_open(const tcp_info& connection) {
  constexpr int kEstablished = 1;  // TCP_ESTABLISHED, which <linux/tcp.h> lacks
  return connection.tcpi_state == kEstablished;
}

bool has_more_to_read(int connection) {
  int num_bytes = 0;
  return ioctl(connection, FIONREAD, &num_bytes) != 0 || num_bytes > 0;
}

bool is_silent(int connection) {
  const std::optional<tcp_info> info = info_of(connection);
  return info && is_open(*info) && info->tcpi_bytes_received > 0 && !has_more_to_read(connection);
}

// The other end of a connection; nothing if there is none.
std::optional<ConnectionEnd> other_end(int connection) {
  const std::optional<End> end = end_of(connection, getpeername);
  if (!end) return std::nullopt;
  return text_of(*end);
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
  // All are looked at before the first one is hung up on: then the others are read at once, and
  // have nothing left either; and connections may get the numbers of those that are gone.
  std::vector<std::pair<int, std::optional<ConnectionEnd>>> silent;
  for_each_socket_at_port(port, [&silent](int descriptor) {
    if (is_silent(descriptor)) silent.emplace_back(descriptor, other_end(descriptor));
  });
  for (const auto& [descriptor, end] : silent) {
    if (end && other_end(descriptor) == end) shutdown(descriptor, SHUT_RDWR);
  }
}

std::vector<ConnectionEnd> own_ends_towards_port(int port) {
  std::vector<ConnectionEnd> ends;
  for_each_file([&](int descriptor) {
    const std::optional<End> other = end_of(descriptor, getpeername);
    if (!other || other->port != port) return;
    if (const std::optional<End> own = end_of(descriptor, getsockname)) {
      ends.push_back(text_of(*own));
    }
  });
  return ends;
}

std::set<ConnectionEnd> open_ends_at_port(int port) {
  std::set<ConnectionEnd> ends;
  for_each_socket_at_port(port, [&](int descriptor) {
    const std::optional<tcp_info> info = info_of(descriptor);
    const std::optional<ConnectionEnd> end = other_end(descriptor);
    if (info && is_open(*info) && end) ends.insert(*end);
  });
  return ends;
}

}  // namespace penstock
