#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "penstock/run/world/world.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

// Keeps everybody from using a file store, as a process does that is stopped while it writes.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    EXPECT_EQ(flock(file_, LOCK_EX), 0);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  LockedFile(LockedFile&&) = delete;
  LockedFile& operator=(LockedFile&&) = delete;
  ~LockedFile() { close(file_); }

 private:
  int file_;
};

TEST(SilentStore, IsNotWaitedForWithoutEnd) {
  const testing::TemporaryFolder folder;
  const WorldOptions options{.store_file = folder.path("store"),
                             .timeout = std::chrono::milliseconds(50)};
  const World first(options);
  const LockedFile lock(options.store_file);
  EXPECT_EQ(message_of([&] { World{options}; }),
            "what the ranks share does not answer: the process that holds it, or the one that has "
            "used it last, is stopped or cut off");
}

TEST(SilentStore, EndsAWaitWhenTheCallerKnowsBetter) {
  const testing::TemporaryFolder folder;
  World world({.store_file = folder.path("store")});
  world.store().set("lunch", "soup");
  EXPECT_EQ(world.find("lunch", [] {}), "soup");
  EXPECT_EQ(world.find("dinner", [] {}), std::nullopt);
  const LockedFile lock(folder.path("store"));
  const auto look = [] { throw std::runtime_error("rank 1 has died"); };
  EXPECT_EQ(message_of([&] { world.find("lunch", look); }), "rank 1 has died");
  EXPECT_EQ(
      message_of([&] { world.exchange(world.everyone(), "dinner", "bread", {.look = look}); }),
      "rank 1 has died");
}

}  // namespace
}  // namespace penstock
