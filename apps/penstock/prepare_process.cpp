#include "prepare_process.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "penstock/run/threads/process_tuning.h"
#include "sibling_ranks.h"

namespace penstock {

void prepare_process() {
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const std::string core = better_blas_core();
  // If it is set already, this is the second start, or the user knows better.
  if (!core.empty() && std::getenv(kVariable) == nullptr) {
    setenv(kVariable, core.c_str(), /*overwrite=*/0);
    std::vector<std::string> arguments = own_command_line();
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());  // if it fails, all is well but slow
  }
  keep_freed_memory();
  use_one_blas_thread();
  at::set_num_threads(1);
}

}  // namespace penstock
