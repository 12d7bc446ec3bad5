#include "penstock/run/threads/process_tuning.h"

#include <dlfcn.h>
#include <malloc.h>

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

}  // namespace penstock
