#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/types.h>

#include "penstock/run/world/world_options.h"

namespace penstock {

// The words that this process was started with, the name of the program first.
std::vector<std::string> own_command_line();

// For commands that measure processes: where a process finds the others. Without `folder`, it is
// rank 0 and has to start them.
struct SiblingFlags {
  int rank = 0;
  std::string folder;
};

// Adds the flags that SiblingRanks passes; nobody else needs to know them.
void add_sibling_flags(CLI::App& command, SiblingFlags& flags);

// The processes of a job, started by the one that the user has started: this program again, with
// the same command line. They end when this object does, and with this process, however that ends.
class SiblingRanks {
 public:
  SiblingRanks(const SiblingFlags& flags, int num_ranks);
  SiblingRanks(const SiblingRanks&) = delete;
  SiblingRanks& operator=(const SiblingRanks&) = delete;
  SiblingRanks(SiblingRanks&&) = delete;
  SiblingRanks& operator=(SiblingRanks&&) = delete;
  ~SiblingRanks();

  const WorldOptions& world() const { return world_; }

 private:
  void start(int rank);

  std::filesystem::path folder_;
  WorldOptions world_;
  std::vector<pid_t> processes_;
};

}  // namespace penstock
