#include "prepare_process.h"

#include <csignal>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "blas_core.h"
#include "penstock/run/threads/process_tuning.h"
#include "sibling_ranks.h"

namespace penstock {

void prepare_process() {
  if (const std::string core = better_blas_core(); !core.empty()) {
    set_blas_core(core);
    std::vector<std::string> arguments = own_command_line();
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());  // if it fails, all is well but slow
  }
  // Neither a rank nor a reader that goes away ends this process; and messages over Gloo are
  // cheaper if that is so from the beginning.
  std::signal(SIGPIPE, SIG_IGN);
  keep_freed_memory();
  use_one_blas_thread();
  at::set_num_threads(1);
}

}  // namespace penstock
