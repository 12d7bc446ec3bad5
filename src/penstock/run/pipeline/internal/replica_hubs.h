#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "penstock/run/transport/in_process/in_process_hub.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// Connects the replicas of a pipeline that are all in this process: rank by rank, in the order in
// which each of them asks for its connections.
class ReplicaHubs : public std::enable_shared_from_this<ReplicaHubs> {
 public:
  explicit ReplicaHubs(int num_replicas) : num_replicas_(num_replicas) {}

  // The data group of one replica. Keeps the hubs.
  std::shared_ptr<RankGroup> group_of(int replica);

  // Makes all waits end. Safe from any thread.
  void stop() noexcept;

  // Forgets what a failed step has left, when no replica is running.
  void reset();

 private:
  class Group;
  class SharedHub;

  std::shared_ptr<InProcessHub> hub(std::size_t number, const FabricOptions& options);

  int num_replicas_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<InProcessHub>> hubs_;
  std::vector<Extent> extents_;
  int num_resets_ = 0;
};

}  // namespace penstock
