#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/threads/shared_cores.h"
#include "penstock/run/transport/progress_board.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

// Connects the ranks of one pipeline: those of this process to each other and to all the others.
class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  Fabric(Fabric&&) = delete;
  Fabric& operator=(Fabric&&) = delete;
  virtual ~Fabric() = default;

  // The endpoint of a rank of this process; lives as long as the fabric.
  virtual Transport& endpoint(int rank) = 0;

  // Of the ranks of this process, which write their own.
  virtual ProgressBoard& progress() = 0;

  // Around each run of `program`, while no rank of this process is running. begin_step() throws if
  // an earlier failure keeps the ranks from working together.
  virtual void begin_step(const Schedule& program) = 0;
  virtual void end_step() = 0;

  // Instead of end_step() when ranks of this process have thrown: `failure` is what came first, a
  // StoppedError if it was none of them. Returns what the caller of the step has to know.
  virtual std::exception_ptr fail_step(std::exception_ptr failure) = 0;

  // Whether somebody has stopped the ranks of this process, as far as that is known without
  // waiting.
  virtual bool is_stopped() const { return false; }

  // The names of the keyword inputs that the stages of all processes take. None if the fabric does
  // not know those of the others.
  virtual std::optional<std::set<std::string>> keywords() const { return std::nullopt; }
};

// What a fabric is to carry.
struct FabricOptions {
  Extent extent = {};  // of stages and microbatches
  // Further stages, for messages beside those of the program.
  int num_exchange_stages = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);  // of every wait for another rank
  int num_busy_threads = 1;                                      // of this process, during a step
  // By stage of the program, a fingerprint of what it is; 0 where this process does not know. Those
  // that several processes know must be the same.
  std::vector<std::uint64_t> stage_layouts = {};
  std::set<std::string> keywords = {};  // inputs by name that stages of this process take
};

// The ranks of a pipeline that are not all threads of one process; or the replicas of one rank,
// that is the ranks with the same stages of several pipelines.
class RankGroup {
 public:
  RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  RankGroup(RankGroup&&) = delete;
  RankGroup& operator=(RankGroup&&) = delete;
  virtual ~RankGroup() = default;

  virtual int num_ranks() const = 0;

  // Those that run in this process, ascending; at least one.
  virtual std::vector<int> local_ranks() const = 0;

  // How many of them share this process, also if other objects than this one run them.
  virtual int num_ranks_in_process() const { return static_cast<int>(local_ranks().size()); }

  // Processes of the job that share the cores of this one.
  virtual SharedCores processes_on_cores() const { return {}; }

  // How often the ranks were brought together again after a failure. What they had agreed on, some
  // of them may not have heard of: it is to be agreed on again.
  virtual int num_recoveries() const { return 0; }

  // Connects all ranks to run `program`. Every process calls it at the same point of its work, with
  // the same arguments.
  virtual std::unique_ptr<Fabric> connect(const Schedule& program,
                                          const FabricOptions& options) = 0;
};

}  // namespace penstock
