#include "penstock/run/world/internal/host.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "penstock/base/text.h"
#include "penstock/run/world/store.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : descriptor_(
            socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket(Socket&&) = delete;
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  bool connect_to(const addrinfo& address) const {
    return descriptor_ >= 0 && connect(descriptor_, address.ai_addr, address.ai_addrlen) == 0;
  }
  // Connecting takes no longer than this, or a second; the kernel alone gives up after minutes.
  void limit_connecting(Clock::duration time) const {
    const timeval limit{
        .tv_sec = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count()),
        .tv_usec = 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

struct Lookup {
  Addresses addresses;
  std::string error;  // why there are none
};

Lookup look_up(const Endpoint& endpoint, int socket_type) {
  addrinfo wanted{};
  wanted.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int result =
      getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(), &wanted, &found);
  if (result == 0) return {Addresses(found), ""};
  return {nullptr, fmt::format("the host name {} is unknown: {}", quote(endpoint.address),
                               gai_strerror(result))};
}

}  // namespace

std::string host_identity() {
  constexpr std::size_t kLongestName = 256;
  std::array<char, kLongestName> name{};
  gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code ignored;  // it is empty then
  const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid", ignored);
  return fmt::format("{} {} {}", name.data(), boot, processes.string());
}

std::string to_string(const Endpoint& endpoint) {
  return fmt::format("{}:{}", endpoint.address, endpoint.port);
}

std::string try_to_connect(const Endpoint& endpoint, Clock::time_point deadline) {
  const Lookup lookup = look_up(endpoint, SOCK_STREAM);
  std::string error = lookup.error;
  for (const addrinfo* address = lookup.addresses.get(); address != nullptr;
       address = address->ai_next) {
    const Socket socket(*address);
    socket.limit_connecting(deadline - Clock::now());
    if (socket.connect_to(*address)) return {};
    error = errno == EINPROGRESS ? "no answer" : std::strerror(errno);
  }
  return error;
}

std::string wait_for_listener(const Endpoint& endpoint, Clock::time_point deadline) {
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (;;) {
    std::string error = try_to_connect(endpoint, deadline);
    const auto left = deadline - Clock::now();
    if (error.empty() || left <= Clock::duration::zero()) return error;
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, left));
  }
}

std::string local_address_towards(const Endpoint& endpoint) {
  const Lookup lookup = look_up(endpoint, SOCK_DGRAM);  // connecting one sends nothing
  std::string error = lookup.error;
  for (const addrinfo* address = lookup.addresses.get(); address != nullptr;
       address = address->ai_next) {
    const Socket socket(*address);
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    std::array<char, NI_MAXHOST> text{};
    if (socket.connect_to(*address) &&
        getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return text.data();
    }
    error = std::strerror(errno);
  }
  throw WorldError(
      fmt::format("no address of this host reaches {}: {}", to_string(endpoint), error));
}

}  // namespace penstock
