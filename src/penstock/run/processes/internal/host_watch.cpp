#include "penstock/run/processes/internal/host_watch.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {
namespace {

bool is_stopped(int process_id) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", process_id)), text);
  const std::size_t end_of_name = text.rfind(')');  // the name may hold anything
  return end_of_name != std::string::npos && text.substr(end_of_name, 3) == ") T";
}

}  // namespace

int open_process(int process_id) {
  return static_cast<int>(syscall(SYS_pidfd_open, process_id, 0));
}

HostWatch::HostWatch(const World& world, const Group& group) {
  for (const int rank : group.ranks) {
    const Member& member = world.member(rank);
    if (rank == world.rank() || member.host != world.member(world.rank()).host) continue;
    const int descriptor = open_process(member.process_id);
    if (descriptor < 0 && errno != ESRCH) continue;  // the kernel does not tell
    processes_.push_back({rank, member.process_id, descriptor});
  }
  has_ended_.resize(processes_.size());
}

HostWatch::~HostWatch() {
  for (const Process& process : processes_) {
    if (process.descriptor >= 0) close(process.descriptor);
  }
}

bool HostWatch::watches(int rank) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [rank](const Process& process) { return process.rank == rank; });
}

std::vector<int> HostWatch::take_ended() {
  std::vector<int> ended;
  for (std::size_t index = 0; index < processes_.size(); ++index) {
    if (has_ended_[index]) continue;
    pollfd query{processes_[index].descriptor, POLLIN, 0};
    if (query.fd >= 0 && poll(&query, 1, 0) <= 0) continue;
    has_ended_[index] = true;
    ended.push_back(processes_[index].rank);
  }
  return ended;
}

std::vector<int> HostWatch::stopped() const {
  std::vector<int> ranks;
  for (const Process& process : processes_) {
    if (is_stopped(process.process_id)) ranks.push_back(process.rank);
  }
  return ranks;
}

}  // namespace penstock
