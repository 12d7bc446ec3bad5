#include "penstock/run/threads/shared_cores.h"

#include <sched.h>
#include <unistd.h>

namespace penstock {

SharedCores shared_cores(std::span<const int> processes) {
  constexpr int kThisThread = 0;
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(kThisThread, sizeof(own), &own);
  const auto may_share = [&own](int process) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(process, sizeof(cores), &cores) != 0) return true;
    CPU_AND(&cores, &cores, &own);
    return CPU_COUNT(&cores) > 0;
  };
  SharedCores result{.num_processes = 0};
  for (const int process : processes) {
    if (process == getpid()) result.place = result.num_processes;
    if (may_share(process)) ++result.num_processes;
  }
  return result;
}

}  // namespace penstock
