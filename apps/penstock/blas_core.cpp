#include "blas_core.h"

#include <cstdlib>
#include <string_view>

#include <dlfcn.h>

namespace penstock {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

// By its own account; empty if it is not OpenBLAS.
std::string_view core_that_blas_sees() {
  // The name that libtorch knows it by. Never unloaded: it may have started threads.
  void* library = dlopen("libblas.so.3", RTLD_LAZY);
  if (library == nullptr) return {};
  using CoreName = const char* (*)();
  const auto core_name = reinterpret_cast<CoreName>(dlsym(library, "openblas_get_corename"));
  return core_name == nullptr ? std::string_view() : core_name();
}

}  // namespace

std::string better_blas_core() {
#if defined(__x86_64__)
  // What OpenBLAS falls back to.
  if (std::getenv(kVariable) != nullptr || core_that_blas_sees() != "Prescott") return "";
  const bool is_wide =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  if (is_wide) return "SkylakeX";
  const bool is_modern = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (is_modern) return "Haswell";
#endif
  return "";
}

void set_blas_core(const std::string& core) {
  if (!core.empty()) setenv(kVariable, core.c_str(), /*overwrite=*/0);
}

}  // namespace penstock
