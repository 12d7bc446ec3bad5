#include "penstock/run/threads/shared_cores.h"

#include <algorithm>

#include <sched.h>

namespace penstock {

int num_sharing_cores(std::span<const int> processes) {
  constexpr int kThisThread = 0;
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(kThisThread, sizeof(own), &own);
  return static_cast<int>(std::count_if(processes.begin(), processes.end(), [&own](int process) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(process, sizeof(cores), &cores) != 0) return true;
    CPU_AND(&cores, &cores, &own);
    return CPU_COUNT(&cores) > 0;
  }));
}

}  // namespace penstock
