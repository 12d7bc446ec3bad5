#include "penstock/run/threads/pinned_thread.h"

#include <pthread.h>

namespace penstock {

std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &allowed)) cores.push_back(core);
  }
  return cores;
}

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(core), &cores);
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
}

PinnedThread::PinnedThread(std::optional<int> core) : is_pinned_(core.has_value()) {
  if (!is_pinned_) return;
  CPU_ZERO(&before_);
  pthread_getaffinity_np(pthread_self(), sizeof(before_), &before_);
  pin_to_core(*core);
}

PinnedThread::~PinnedThread() {
  if (is_pinned_) pthread_setaffinity_np(pthread_self(), sizeof(before_), &before_);
}

}  // namespace penstock
