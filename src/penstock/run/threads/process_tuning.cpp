#include "penstock/run/threads/process_tuning.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>

namespace penstock {

void use_one_blas_thread() {
  static const bool is_done = [] {
    using SetNumThreads = void (*)(int);
    const auto set_num_threads =
        reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
    if (set_num_threads != nullptr) set_num_threads(1);
    return true;
  }();
  static_cast<void>(is_done);
}

void keep_freed_memory() {
  constexpr int kNeverMap = 1 << 30;
  constexpr int kNeverTrim = 2'000'000'000;
  mallopt(M_MMAP_THRESHOLD, kNeverMap);
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
}

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(core), &cores);
  // A machine that does not allow it runs as well as it did before.
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
}

}  // namespace penstock
