#include "penstock/run/threads/process_tuning.h"

#include <string_view>

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

std::string better_blas_core() {
#if defined(__x86_64__)
  using CoreName = const char* (*)();
  const auto core_name = reinterpret_cast<CoreName>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  // What OpenBLAS falls back to.
  if (core_name == nullptr || std::string_view(core_name()) != "Prescott") return "";
  const bool is_wide =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  if (is_wide) return "SkylakeX";
  const bool is_modern = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (is_modern) return "Haswell";
#endif
  return "";
}

void keep_freed_memory() {
  constexpr int kNeverMap = 1 << 30;
  constexpr int kNeverTrim = 2'000'000'000;
  mallopt(M_MMAP_THRESHOLD, kNeverMap);
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
}

}  // namespace penstock
