#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "penstock/run/checkpoint/internal/files.h"

namespace penstock {

// Where the files of a checkpoint go before it is committed.
std::filesystem::path unfinished_path(const std::filesystem::path& folder, std::int64_t step,
                                      const std::string& token);

// The folder of a checkpoint that is being written, under a name that no reader looks at. It is
// removed at the end, unless it was committed; and if that does not happen, by the next one.
class UnfinishedCheckpoint {
 public:
  // Makes the folder, and removes what earlier runs have left half done. `token` tells it from
  // those of other processes.
  UnfinishedCheckpoint(const std::filesystem::path& folder, std::int64_t step, std::string token);
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint(UnfinishedCheckpoint&&) = delete;
  UnfinishedCheckpoint& operator=(UnfinishedCheckpoint&&) = delete;
  ~UnfinishedCheckpoint();

  const std::filesystem::path& path() const { return path_; }    // where its files go
  const std::filesystem::path& place() const { return place_; }  // where it will be

  // Gives it its name at once: a checkpoint of the same step is replaced by it. What was written is
  // on the disk already.
  void commit();

  // Removes the oldest of the others, so that `keep` are left with this one. Each loses its name
  // before its files.
  void prune(int keep) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path place_;
  std::filesystem::path path_;
  std::string token_;
};

}  // namespace penstock
