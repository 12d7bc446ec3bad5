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
  bool has_joined = false;  // from then on, the others notice what happens to this process
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
  // Throws Error if there is no memory for it.
  void write(const std::string& text) const;

 private:
  int number_;
};

// The processes of a job, started by the one that the user has started: this program again, with
// the same command line, and what was read of standard input. They end when this object does, and
// with this process, however that ends.
class SiblingRanks {
 public:
  SiblingRanks(const SiblingFlags& flags, int num_ranks);
  SiblingRanks(const SiblingRanks&) = delete;
  SiblingRanks& operator=(const SiblingRanks&) = delete;
  SiblingRanks(SiblingRanks&&) = delete;
  SiblingRanks& operator=(SiblingRanks&&) = delete;
  ~SiblingRanks();

  // Joining ends with FailedRun if one of them has died. Must not be used longer than this object.
  const WorldOptions& world() const { return world_; }

 private:
  void start(int rank);
  void require_alive() const;

  std::optional<MemoryFile> store_;  // where they meet; of rank 0
  std::optional<MemoryFile> input_;  // of rank 0, if it has read something
  WorldOptions world_;
  std::vector<pid_t> processes_;
};

}  // namespace penstock
