#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/run/train/run_pipeline.h"
#include "process_flags.h"
#include "sibling_ranks.h"

namespace penstock {

// What train, eval and generate-text have in common; filled from the command line, a config and a
// checkpoint. Numbers that are 0 are left to the model.
struct RunFlags {
  std::string config;
  std::string model = "gpt";
  int layers = 0;
  int width = 0;
  int heads = 0;
  int context = 0;
  int vocabulary = 0;
  double dropout = 0;
  bool is_untied = false;
  std::vector<std::string> data;
  double holdout = 0.1;
  std::string loss = "auto";

  std::string schedule = "1F1B";
  int ranks = 2;
  int stages_per_rank = 0;
  int microbatches = 8;
  int batch = 32;
  std::string transport;  // if not given, find_launched() chooses
  int replicas = 1;
  bool is_sharded = false;
  std::uint64_t seed = 1;
  std::string checkpoint;
  ProcessFlags processes;
  SiblingFlags sibling;
  std::optional<TokenShape> tokens;      // what the model takes, if no data is to be read
  std::optional<WorldOptions> launched;  // if others have started the processes of the run

  bool uses_processes() const { return transport != "threads"; }
  int num_processes() const { return ranks * replicas; }
  // After which ranks give each other up. Threads cannot be stopped or cut off.
  std::chrono::milliseconds deadline() const {
    using std::chrono::seconds;
    return processes.deadline(uses_processes() ? seconds(30) : seconds(300));
  }
  bool is_first_process() const { return (launched ? launched->rank : sibling.rank) == 0; }
  // What one of the pipelines gets of a step.
  int batch_per_replica() const { return batch / replicas; }
  int microbatches_per_replica() const { return microbatches / replicas; }
};

void add_run_options(CLI::App& command, RunFlags& flags);

// Finds out whether `penstock launch` or torchrun has started this process, as one of several, and
// chooses how ranks reach each other if that was not given. Throws ArgumentError if ranks are
// threads, but processes were started.
void find_launched(RunFlags& flags);

// Everything that a run needs before its ranks start. `tell` hears of a search while it goes on.
// Throws Error for what is wrong with the question: files, names, sizes.
struct RunSetup {
  std::shared_ptr<const Dataset> data;
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> held_out;
  RunModel model;
  LossFunction loss;
  PipelinePlan plan;  // of the first process alone
};
RunSetup prepare_run(const CLI::App& command, RunFlags& flags,
                     const std::function<void(const std::string& line)>& tell = {});

// The ranks of a run: threads, or processes that are started here unless they are there already.
class RunRanks {
 public:
  // Throws Error if they do not find each other.
  RunRanks(RunFlags& flags, RunSetup& setup);

  const RunProcesses& processes() const { return processes_; }

  // Lets the other processes know why this one ends, before it does.
  void tell_failure(const std::exception& error);

  // Until all processes are here, so that none ends while another one still talks. Returns the
  // first complaint of one, if any has one.
  std::string wait_for_all(const std::string& complaint = "");

 private:
  std::unique_ptr<SiblingRanks> siblings_;
  std::unique_ptr<World> world_;
  RunProcesses processes_;
};

}  // namespace penstock
