#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/checkpoint/save_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

// What was brought to the disk, by its path. Several threads write files.
struct SyncedPaths {
  std::mutex mutex;
  std::vector<std::string> paths;  // guarded by `mutex`
};
SyncedPaths& synced() {
  static SyncedPaths paths;
  return paths;
}

}  // namespace
}  // namespace penstock

// In the place of the function of libc.
extern "C" int fsync(int descriptor) {
  penstock::SyncedPaths& synced = penstock::synced();
  const std::lock_guard lock(synced.mutex);
  synced.paths.push_back(
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace penstock {
namespace {

using ::testing::Contains;

TEST(CheckpointSync, BringsAllNewFoldersToTheDisk) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("a/b/c");
  const std::vector<RankState> states = {{.tensors = {{"weight", torch::zeros({2})}}}};
  save_checkpoint(run, states, {.step = 1});
  const std::lock_guard lock(synced().mutex);
  for (std::filesystem::path path = std::filesystem::canonical(run);; path = path.parent_path()) {
    EXPECT_THAT(synced().paths, Contains(path.string()));
    if (path == std::filesystem::canonical(folder.path(""))) break;
  }
}

}  // namespace
}  // namespace penstock
