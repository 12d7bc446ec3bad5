#pragma once

#include <vector>

#include "penstock/run/world/world.h"

namespace penstock {

// A descriptor that becomes readable when a process of this host ends; negative, with errno, if
// there is none.
int open_process(int process_id);

// What the kernel knows of the other ranks that are on this host. Ranks are those of the world.
class HostWatch {
 public:
  HostWatch(const World& world, const Group& group);
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;
  HostWatch(HostWatch&&) = delete;
  HostWatch& operator=(HostWatch&&) = delete;
  ~HostWatch();

  // Whether take_ended() will tell of the end of `rank`.
  bool watches(int rank) const;

  // The ranks whose processes have ended since the last call. For one thread.
  std::vector<int> take_ended();

  // The ranks whose processes are stopped (SIGSTOP). Safe from any thread.
  std::vector<int> stopped() const;

 private:
  struct Process {
    int rank = 0;
    int process_id = 0;
    int descriptor = -1;  // negative: it had ended before
  };
  std::vector<Process> processes_;
  std::vector<bool> has_ended_;  // by process; of the thread that calls take_ended()
};

}  // namespace penstock
