#pragma once

#include <map>
#include <string>

#include "penstock/launch/launch_options.h"

namespace penstock {

using Environment = std::map<std::string, std::string>;

// One attempt to run the job: what is the same for all ranks, and new after a restart.
struct Attempt {
  std::string master_address;
  int master_port = 0;
  std::string token;
  std::string store_file;  // where ranks of one host meet instead; empty: at the port
  int num_restarts = 0;    // before this attempt
};

// The environment of a rank: that of the launcher, what torchrun would add, the job's token, and,
// unless the user has decided otherwise, one thread for BLAS and a malloc that keeps its memory.
Environment rank_environment(Environment inherited, const LaunchOptions& options,
                             const Attempt& attempt, int local_rank);

}  // namespace penstock
