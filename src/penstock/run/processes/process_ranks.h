#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "penstock/run/transport/open_transport.h"
#include "penstock/run/transport/rank_group.h"
#include "penstock/run/world/world.h"

namespace penstock {

class Monitor;

struct ProcessRankOptions {
  Group group = {};  // of the processes that are ranks of one pipeline; default: all of the world
  TransportKind transport = TransportKind::Automatic;
  MakeBackend make_backend = {};  // see ProcessTransportOptions
  // What all ranks must agree on beyond the schedule: the name and the size of the model, say.
  std::string model = {};
  // Where the lowest rank that answers writes how the ranks stood when they stalled; empty:
  // nowhere. If the others cannot be asked, because those that hold a store are silent, each
  // writes what it knows to own_replay_path().
  std::string replay_path = {};
  // How long a rank may be silent or without progress between the steps of a pipeline, and how long
  // the others wait for it when they make one; in a step it is ScheduleOptions::deadline.
  std::chrono::milliseconds deadline = std::chrono::seconds(30);
};

// "replay.rank-2.json" for "replay.json" and rank 2 of the world.
std::string own_replay_path(const std::string& replay_path, int rank);

// Processes as the ranks of a pipeline, one each: for ScheduleOptions::group.
//
// From construction on, all of them watch each other. If one dies, throws, leaves early, falls
// silent or stops making progress, all throw a GroupError that names it: within a second for
// a death, at the deadline for silence. After that the group is of no use any more.
class ProcessRanks final : public RankGroup {
 public:
  // To be called by all processes of the group. `world` must outlive this object. Throws
  // GroupError, which names the ranks that have died, do not answer, or have not come within the
  // world's timeout.
  ProcessRanks(World& world, ProcessRankOptions options);
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;
  ProcessRanks(ProcessRanks&&) = delete;
  ProcessRanks& operator=(ProcessRanks&&) = delete;
  // Says goodbye. The rank that holds the store waits for the others, for they need it to do so.
  ~ProcessRanks() override;

  int num_ranks() const override { return options_.group.size(); }
  std::vector<int> local_ranks() const override;
  // Of the whole world, whatever the group: all of them compute at the same time.
  SharedCores processes_on_cores() const override;

  // Throws GroupError if any of the processes is known to have failed: for waits of the caller's.
  void require_healthy() const;

  // For a program that has to end outside of a step: the other ranks throw a GroupError that names
  // this one and `reason`. If it just ends, they do not get to know why. Errors of steps are told
  // without it.
  void give_up(const std::string& reason);

  // Throws GroupError, on all ranks, with the first rank that has another version, schedule or
  // model, and the difference.
  std::unique_ptr<Fabric> connect(const Schedule& program, const FabricOptions& options) override;

 private:
  World& world_;
  ProcessRankOptions options_;
  std::shared_ptr<Monitor> monitor_;
  int num_connections_ = 0;
};

}  // namespace penstock
