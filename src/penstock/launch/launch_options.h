#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace penstock {

// What to start, and where it stands among the hosts of the job.
struct LaunchOptions {
  std::vector<std::string> program = {};  // with its arguments
  int num_ranks = 1;                      // on this host, and on every other one
  int num_nodes = 1;                      // hosts
  int node_rank = 0;                      // which of them this is
  std::string master_address = {};        // where rank 0 listens; empty: this host alone
  int master_port = 0;                    // 0: a free one
  std::string token = {};                 // what members of the job know; empty: a random one
  int max_restarts = 0;

  // After a rank has failed, the others have this long to fail by themselves, with errors of their
  // own, before they are told to end; and then as long again before they are killed.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

}  // namespace penstock
