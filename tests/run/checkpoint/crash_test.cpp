#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A process forked from this one, and what it writes to a pipe.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<void(int pipe)>& work) {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) std::abort();
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      work(ends[1]);
      _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;
  ForkedProcess(ForkedProcess&&) = delete;
  ForkedProcess& operator=(ForkedProcess&&) = delete;
  ~ForkedProcess() { close(pipe_); }

  pid_t id() const { return process_; }
  int pipe_end() const { return pipe_; }

  // All it has written; returns when it has ended.
  std::string read_all() const {
    std::string text;
    char piece[4096];
    for (;;) {
      const ssize_t count = read(pipe_, piece, sizeof(piece));
      if (count <= 0) break;
      text.append(piece, static_cast<std::size_t>(count));
    }
    int status = 0;
    waitpid(process_, &status, 0);
    return text;
  }

 private:
  pid_t process_ = -1;
  int pipe_ = -1;
};

void tell(int pipe, const std::string& text) {
  if (write(pipe, text.data(), text.size()) < 0) _exit(EXIT_FAILURE);
}

// Four states whose every element is `value`.
std::vector<RankState> states_of(std::int64_t value, std::int64_t elements = 3000) {
  std::vector<RankState> states;
  for (int state = 0; state < 4; ++state) {
    states.push_back({.tensors = {{fmt::format("layer{}.weight", state),
                                   torch::full({elements}, value, torch::kLong)}}});
  }
  return states;
}

// The value that all elements of all tensors have; fails if there are several, or damage.
std::int64_t value_in(const std::filesystem::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  EXPECT_THAT(reader.find_damage(), IsEmpty());
  EXPECT_THAT(reader.entries(), SizeIs(4));
  const std::int64_t value = reader.read("layer0.weight")[0].item<std::int64_t>();
  for (const std::string& entry : reader.entries()) {
    EXPECT_TRUE(reader.read(entry).eq(value).all().item<bool>()) << entry << " of " << checkpoint;
  }
  return value;
}

std::size_t num_leftovers(const std::filesystem::path& run) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.path().filename().string().find('.') != std::string::npos) ++count;
  }
  return count;
}

// Waits until `process` has said something, lets it run for `microseconds`, kills it, and returns
// the last whole line it has written.
std::int64_t kill_after(const ForkedProcess& process, int microseconds) {
  pollfd query{.fd = process.pipe_end(), .events = POLLIN, .revents = 0};
  poll(&query, 1, 60'000);
  usleep(static_cast<useconds_t>(microseconds));
  kill(process.id(), SIGKILL);
  const std::string text = process.read_all();
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos) return -1;
  const std::size_t begin = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  return std::stoll(text.substr(begin == std::string::npos ? 0 : begin + 1));
}

TEST(CheckpointCrash, LeavesThePreviousOneOrTheNewOne) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  std::mt19937 random(7);
  std::uniform_int_distribution<int> moments(0, 40'000);
  std::int64_t step = 0;
  std::size_t num_interrupted = 0;
  for (int kill = 0; kill < 40; ++kill) {
    const ForkedProcess process([&](int pipe) {
      for (std::int64_t next = step + 1;; ++next) {
        save_checkpoint(run, states_of(next), {.step = next}, {.keep = 3});
        tell(pipe, fmt::format("{}\n", next));
      }
    });
    const std::int64_t told = kill_after(process, moments(random));
    ASSERT_GT(told, step) << "it has saved";
    const auto latest = latest_checkpoint(run);
    ASSERT_TRUE(latest);
    step = value_in(*latest);
    EXPECT_EQ(*latest, checkpoint_path(run, step));
    EXPECT_GE(step, told) << "what was saved stays";
    EXPECT_LE(step, told + 1);
    // Older ones are whole, too, also while they are pruned.
    const auto all = list_checkpoints(run);
    EXPECT_LE(all.size(), 4U);
    for (const auto& path : all) EXPECT_EQ(checkpoint_path(run, value_in(path)), path);
    if (num_leftovers(run) > 0) ++num_interrupted;
  }
  EXPECT_GT(num_interrupted, 0U) << "no kill came in the middle of anything";
  save_checkpoint(run, states_of(step + 1), {.step = step + 1}, {.keep = 3});
  EXPECT_EQ(num_leftovers(run), 0U);
  EXPECT_THAT(list_checkpoints(run), SizeIs(3));
}

TEST(CheckpointCrash, LeavesOneOfTwoOfTheSameStep) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  std::mt19937 random(8);
  std::uniform_int_distribution<int> moments(0, 20'000);
  std::int64_t value = 0;
  for (int kill = 0; kill < 15; ++kill) {
    const ForkedProcess process([&](int pipe) {
      for (std::int64_t next = value + 1;; ++next) {
        save_checkpoint(run, states_of(next), {.step = 1});
        tell(pipe, fmt::format("{}\n", next));
      }
    });
    const std::int64_t told = kill_after(process, moments(random));
    ASSERT_GT(told, value);
    ASSERT_THAT(list_checkpoints(run), SizeIs(1));
    value = value_in(checkpoint_path(run, 1));
    EXPECT_GE(value, told);
    EXPECT_LE(value, told + 1);
  }
}

// Gives this process mounts of its own; someone who is not root becomes it in a namespace for that.
bool unshare_mounts() {
  if (unshare(CLONE_NEWNS) == 0) return true;
  const uid_t user = getuid();
  const gid_t group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", user);
  std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", group);
  return getuid() == 0 && getgid() == 0;
}

// Does `work` in a process that has a file system of its own in `folder`, with `bytes` of room.
// Returns what it returns, or the reason why there is none, after "skip: ".
std::string on_small_disk(const std::string& folder, int bytes,
                          const std::function<std::string()>& work) {
  const ForkedProcess process([&](int pipe) {
    if (!unshare_mounts() || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) != 0) {
      tell(pipe, fmt::format("skip: mounting is not allowed here: {}", std::strerror(errno)));
      return;
    }
    std::string text = work();
    if (::testing::Test::HasFailure()) text += "\nan expectation has failed";
    tell(pipe, text);
  });
  return process.read_all();
}

TEST(CheckpointDisk, ThatIsFullLeavesThePreviousOne) {
  const TemporaryFolder folder;
  const std::string run = folder.path("");
  const std::string found = on_small_disk(run, 400'000, [&] {
    save_checkpoint(run, states_of(1), {.step = 1});
    std::string text = message_of([&] { save_checkpoint(run, states_of(2, 20'000), {.step = 2}); });
    text += fmt::format("\nleft over: {}", num_leftovers(run));
    text += fmt::format("\nlatest: {}", value_in(latest_checkpoint(run).value()));
    save_checkpoint(run, states_of(3), {.step = 3});
    text += fmt::format("\nlatest: {}", value_in(latest_checkpoint(run).value()));
    return text;
  });
  if (found.starts_with("skip: ")) GTEST_SKIP() << found;
  EXPECT_THAT(found, ::testing::ContainsRegex(
                         "step-00000002.partial-[0-9a-f]+/model-0000[1-4]-of-00004.safetensors: "
                         "cannot be written beyond [0-9]+ bytes: No space left on device; make "
                         "room or choose another folder\n"
                         "left over: 0\nlatest: 1\nlatest: 3$"));
}

TEST(CheckpointDisk, ThatIsReadOnlyIsNamed) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  std::filesystem::create_directory(run);
  const std::string found = on_small_disk(run, 400'000, [&] {
    save_checkpoint(run, states_of(1), {.step = 1});
    if (mount("none", run.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return std::string("skip: remounting is not allowed here");
    }
    std::string text = message_of([&] { save_checkpoint(run, states_of(2), {.step = 2}); });
    text += fmt::format("\nlatest: {}", value_in(latest_checkpoint(run).value()));
    return text;
  });
  if (found.starts_with("skip: ")) GTEST_SKIP() << found;
  EXPECT_THAT(found, ::testing::MatchesRegex(
                         ".*/run/step-00000002.partial-[0-9a-f]+: cannot be created: Read-only "
                         "file system; choose a folder that can be written to\nlatest: 1"));
}

TEST(CheckpointDisk, WithAFileInItsPlaceIsNamed) {
  const TemporaryFolder folder;
  folder.write("run", "not a folder");
  EXPECT_EQ(message_of([&] { save_checkpoint(folder.path("run"), states_of(1), {.step = 1}); }),
            folder.path("run") + ": cannot be created: Not a directory");
}

}  // namespace
}  // namespace penstock
