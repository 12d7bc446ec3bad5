#include "tests/run/processes/delayed_network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <future>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

int require_done(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

// ---- hosts ----

// The last byte of a host's hardware address, and of its internet address, is its number + 1.
constexpr std::array<std::uint8_t, 5> kHardwarePrefix = {0x02, 'p', 'e', 'n', 's'};

struct Host {
  int name_space = -1;
  int tap = -1;  // frames that its eth0 sends are read here, and what is written arrives there
};

ifreq request_for(const char* interface) {
  ifreq request = {};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  return request;
}

void set_up(int socket, const char* interface) {
  ifreq request = request_for(interface);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  require_done(ioctl(socket, SIOCSIFFLAGS, &request), "cannot switch a network interface on");
}

void set_address(int socket, unsigned long what, const std::string& address) {
  ifreq request = request_for("eth0");
  sockaddr_in internet = {};
  internet.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &internet.sin_addr);
  std::memcpy(&request.ifr_addr, &internet, sizeof(internet));
  require_done(ioctl(socket, what, &request), "cannot give eth0 an address");
}

// Leaves the thread that calls it in the namespace of the host.
Host make_host(int number) {
  require_done(unshare(CLONE_NEWNET), "cannot make a network namespace");
  Host host;
  host.name_space = require_done(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC),
                                 "cannot open a network namespace");
  host.tap = require_done(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK),
                          "cannot open /dev/net/tun");
  ifreq request = request_for("eth0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;  // whole frames with checksums, and nothing else
  require_done(ioctl(host.tap, TUNSETIFF, &request), "cannot make a TAP device");
  const int socket =
      require_done(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "cannot make a socket");
  request = request_for("eth0");
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::copy(kHardwarePrefix.begin(), kHardwarePrefix.end(), request.ifr_hwaddr.sa_data);
  request.ifr_hwaddr.sa_data[kHardwarePrefix.size()] = static_cast<char>(number + 1);
  require_done(ioctl(socket, SIOCSIFHWADDR, &request), "cannot give eth0 a hardware address");
  set_address(socket, SIOCSIFADDR, DelayedNetwork::address(number));
  set_address(socket, SIOCSIFNETMASK, "255.255.255.0");
  set_up(socket, "lo");
  set_up(socket, "eth0");
  close(socket);
  return host;
}

// ---- the switch ----

class Switch {
 public:
  Switch(const DelayedNetworkOptions& options, const std::vector<Host>& hosts, int commands)
      : options_(options), commands_(commands) {
    for (const Host& host : hosts) ports_.push_back({.tap = host.tap});
  }

  [[noreturn]] void run() {
    for (;;) {
      wait();
      obey();
      for (Port& port : ports_) take_frames(port);
      for (Port& port : ports_) pass_frames(port);
    }
  }

 private:
  struct Frame {
    Clock::time_point due;
    std::vector<std::uint8_t> bytes;
  };

  struct Port {
    int tap = -1;
    bool is_cut = false;
    Clock::time_point is_sent = {};  // when the last frame of the queue will have left the host
    std::deque<Frame> queue = {};
  };

  void wait() {
    std::vector<pollfd> polled = {{commands_, POLLIN, 0}};
    Clock::time_point next = Clock::time_point::max();
    for (const Port& port : ports_) {
      polled.push_back({port.tap, POLLIN, 0});
      if (!port.queue.empty()) next = std::min(next, port.queue.front().due);
    }
    timespec left = {};
    if (next != Clock::time_point::max()) {
      const auto time = std::max<std::chrono::nanoseconds>(next - Clock::now(), {});
      left.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(time).count();
      left.tv_nsec = (time % std::chrono::seconds(1)).count();
    }
    ppoll(polled.data(), polled.size(), next == Clock::time_point::max() ? nullptr : &left,
          nullptr);
  }

  void obey() {
    std::uint8_t host = 0;
    while (read(commands_, &host, 1) == 1) ports_[host].is_cut = true;
  }

  void take_frames(Port& port) {
    for (;;) {
      const ssize_t count = read(port.tap, buffer_.data(), buffer_.size());
      if (count <= 0) return;
      const Clock::time_point now = Clock::now();
      const Clock::time_point start = std::max(now, port.is_sent);
      if (bytes_sent_in(start - now) > static_cast<double>(options_.queue_bytes)) continue;
      port.is_sent = start + sending_time(static_cast<double>(count));
      port.queue.push_back(
          {port.is_sent + options_.delay, {buffer_.begin(), buffer_.begin() + count}});
    }
  }

  double bytes_sent_in(Clock::duration time) const {
    return std::chrono::duration<double>(time).count() * options_.bytes_per_second;
  }

  Clock::duration sending_time(double bytes) const {
    return std::chrono::ceil<Clock::duration>(
        std::chrono::duration<double>(bytes / options_.bytes_per_second));
  }

  void pass_frames(Port& from) {
    while (!from.queue.empty() && from.queue.front().due <= Clock::now()) {
      for (Port& to : ports_) {
        const std::vector<std::uint8_t>& bytes = from.queue.front().bytes;
        if (&to == &from || from.is_cut || to.is_cut || !is_for(to, bytes)) continue;
        // What a host has no room for is lost, as it is on a real one.
        [[maybe_unused]] const ssize_t written = write(to.tap, bytes.data(), bytes.size());
      }
      from.queue.pop_front();
    }
  }

  // A frame begins with the hardware address it goes to; an odd one means several hosts.
  bool is_for(const Port& port, const std::vector<std::uint8_t>& frame) const {
    if (frame.size() <= kHardwarePrefix.size() || frame.front() % 2 == 1) return true;
    return std::equal(kHardwarePrefix.begin(), kHardwarePrefix.end(), frame.begin()) &&
           frame[kHardwarePrefix.size()] == &port - ports_.data() + 1;
  }

  DelayedNetworkOptions options_;
  int commands_;
  std::vector<Port> ports_;  // by host
  std::array<std::uint8_t, 1 << 16> buffer_ = {};
};

[[noreturn]] void be_switch(const DelayedNetworkOptions& options, const std::vector<Host>& hosts,
                            int commands, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it has ended already
  Switch(options, hosts, commands).run();
}

}  // namespace

DelayedNetwork::DelayedNetwork(const DelayedNetworkOptions& options) {
  std::vector<Host> hosts;
  try {
    for (int number = 0; number < options.num_hosts; ++number) {
      // On a thread of its own, so that this one stays where it is.
      hosts.push_back(std::async(std::launch::async, make_host, number).get());
      namespaces_.push_back(hosts.back().name_space);
    }
    std::array<int, 2> commands = {};
    require_done(pipe2(commands.data(), O_CLOEXEC | O_NONBLOCK), "cannot make a pipe");
    commands_ = commands[1];
    const pid_t parent = getpid();
    switch_ = require_done(fork(), "cannot start a process");
    if (switch_ == 0) be_switch(options, hosts, commands[0], parent);
    close(commands[0]);
  } catch (...) {
    for (const Host& host : hosts) close(host.tap);
    close_all();
    throw;
  }
  for (const Host& host : hosts) close(host.tap);  // the switch has them
}

DelayedNetwork::~DelayedNetwork() {
  kill(switch_, SIGKILL);
  waitpid(switch_, nullptr, 0);
  close_all();
}

void DelayedNetwork::close_all() const {
  for (const int descriptor : namespaces_) close(descriptor);
  if (commands_ >= 0) close(commands_);
}

std::string DelayedNetwork::address(int host) {
  return fmt::format("10.231.77.{}", host + 1);
}

void DelayedNetwork::enter(int host) const {
  require_done(setns(namespaces_[static_cast<std::size_t>(host)], CLONE_NEWNET),
               "cannot enter a network namespace");
}

void DelayedNetwork::cut(int host) const {
  const auto number = static_cast<std::uint8_t>(host);
  require_done(static_cast<int>(write(commands_, &number, 1)), "cannot talk to the switch");
}

}  // namespace penstock
