#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

namespace penstock {

struct DelayedNetworkOptions {
  int num_hosts = 2;
  std::chrono::nanoseconds delay = std::chrono::milliseconds(1);  // one way, for every frame
  double bytes_per_second = 12.5e6;                               // that a host can send
  std::size_t queue_bytes = 256 * 1024;  // of a host that wait their turn; more are dropped
};

// Hosts on a slow network, on this machine. A host is a network namespace; its eth0 is a TAP
// device, at the other end of which a process, the switch, passes frames on: later, and not too
// many.
//
// Namespaces have no names, devices end with the switch, and the switch ends with its parent. So
// nothing is left of a network, however the process that made it ends.
class DelayedNetwork {
 public:
  // Throws std::system_error if this process may not make one.
  explicit DelayedNetwork(const DelayedNetworkOptions& options);
  DelayedNetwork(const DelayedNetwork&) = delete;
  DelayedNetwork& operator=(const DelayedNetwork&) = delete;
  DelayedNetwork(DelayedNetwork&&) = delete;
  DelayedNetwork& operator=(DelayedNetwork&&) = delete;
  ~DelayedNetwork();

  static std::string address(int host);

  // From now on the calling thread, and what it starts, is on that host.
  void enter(int host) const;

  // From now on no frame reaches or leaves that host. It is not told, as with a cable.
  void cut(int host) const;

  pid_t switch_process() const { return switch_; }

 private:
  void close_all() const;

  std::vector<int> namespaces_;  // descriptors, by host
  int commands_ = -1;            // to the switch: numbers of hosts to cut
  pid_t switch_ = -1;
};

}  // namespace penstock
