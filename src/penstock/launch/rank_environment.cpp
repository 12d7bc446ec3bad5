#include "penstock/launch/rank_environment.h"

#include <utility>

namespace penstock {

Environment rank_environment(Environment inherited, const LaunchOptions& options,
                             const Attempt& attempt, int local_rank) {
  Environment result = std::move(inherited);
  result["MASTER_ADDR"] = attempt.master_address;
  result["MASTER_PORT"] = std::to_string(attempt.master_port);
  result["RANK"] = std::to_string(options.node_rank * options.num_ranks + local_rank);
  result["WORLD_SIZE"] = std::to_string(options.num_nodes * options.num_ranks);
  result["LOCAL_RANK"] = std::to_string(local_rank);
  result["LOCAL_WORLD_SIZE"] = std::to_string(options.num_ranks);
  result["GROUP_RANK"] = std::to_string(options.node_rank);
  result["PENSTOCK_TOKEN"] = attempt.token;
  if (!attempt.store_file.empty()) result["PENSTOCK_STORE"] = attempt.store_file;
  result["PENSTOCK_RESTARTS"] = std::to_string(attempt.num_restarts);

  // emplace() leaves alone what is there.
  result.emplace("OMP_NUM_THREADS", "1");
  result.emplace("OPENBLAS_NUM_THREADS", "1");
  result.emplace("MALLOC_MMAP_THRESHOLD_", "1073741824");
  result.emplace("MALLOC_TRIM_THRESHOLD_", "2000000000");
  return result;
}

}  // namespace penstock
