#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/types.h>

#include "penstock/run/world/world_options.h"

namespace penstock {

// The words that this process was started with, the name of the program first.
std::vector<std::string> own_command_line();

// For commands that measure processes: where a process finds the others. Without `store`, it is
// rank 0 and has to start them.
struct SiblingFlags {
  int rank = 0;
  std::string store;
};

// Adds the flags that SiblingRanks passes; nobody else needs to know them. A process that has got
// them ends with the one that has started it, from the parsing of its command line on.
void add_sibling_flags(CLI::App& command, SiblingFlags& flags);

// A file that other processes can open as long as this one lives, and that nobody has to remove.
class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  MemoryFile(MemoryFile&&) = delete;
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();

  std::string path() const;

 private:
  int number_;
};

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

  std::optional<MemoryFile> store_;  // where they meet; of rank 0
  WorldOptions world_;
  std::vector<pid_t> processes_;
};

}  // namespace penstock
