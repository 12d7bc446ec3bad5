#include "tests/run/support/rank_processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Tell a process which rank it is, where ranks meet, and at which call of run_in_processes().
constexpr const char* kRank = "PENSTOCK_TEST_RANK";
constexpr const char* kFolder = "PENSTOCK_TEST_FOLDER";
constexpr const char* kCall = "PENSTOCK_TEST_CALL";

int num_calls = 0;

using RankFunction = std::function<void(const WorldOptions& world)>;

[[noreturn]] void run_as_rank(int number, int num_ranks, const std::filesystem::path& folder,
                              const RankFunction& rank) {
  try {
    rank({.rank = number,
          .size = num_ranks,
          .local_rank = number,
          .store_file = folder / "store",
          .timeout = std::chrono::minutes(1)});
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << number << " threw: " << error.what();
  }
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
}

std::filesystem::path output_of(int rank, const std::filesystem::path& folder) {
  return folder / fmt::format("rank-{}", rank);
}

pid_t fork_rank(int number, int num_ranks, const std::filesystem::path& folder,
                const RankFunction& rank) {
  std::fflush(nullptr);  // or the copy would write it, too
  const pid_t process = fork();
  if (process != 0) return process;
  const int output = open(output_of(number, folder).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  run_as_rank(number, num_ranks, folder, rank);
}

pid_t start_rank(int rank, int call, const std::filesystem::path& folder) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> arguments = {
      "/proc/self/exe", fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name())};
  std::vector<std::string> variables = {fmt::format("{}={}", kRank, rank),
                                        fmt::format("{}={}", kFolder, folder.string()),
                                        fmt::format("{}={}", kCall, call)};
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string output = output_of(rank, folder);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = -1;
  const int error = posix_spawn(&process, "/proc/self/exe", &files, nullptr,
                                pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? process : -1;
}

std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Waits for a process, and ends it if it takes too long.
void expect_success(pid_t process, int rank, Clock::time_point end,
                    const std::filesystem::path& folder) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  pollfd query{.fd = descriptor, .events = POLLIN, .revents = 0};
  const bool is_over = poll(&query, 1, std::max(0, static_cast<int>(left.count()))) > 0;
  close(descriptor);
  if (!is_over) kill(process, SIGKILL);
  int status = 0;
  waitpid(process, &status, 0);
  EXPECT_TRUE(is_over && WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "rank " << rank << (is_over ? " failed" : " hung") << " (status " << status << "):\n"
      << contents(output_of(rank, folder));
}

// `start` returns the process of a rank, or -1.
template <typename Start>
void run_all(int num_ranks, const Start& start) {
  const testing::TemporaryFolder folder;
  std::vector<pid_t> processes;
  for (int number = 0; number < num_ranks; ++number) {
    processes.push_back(start(number, folder.path()));
    if (processes.back() < 0) ADD_FAILURE() << "cannot start a process for rank " << number;
  }
  const Clock::time_point end = Clock::now() + std::chrono::minutes(2);
  for (int number = 0; number < num_ranks; ++number) {
    const pid_t process = processes[static_cast<std::size_t>(number)];
    if (process > 0) expect_success(process, number, end, folder.path());  // -1 would be all
  }
}

}  // namespace

void run_in_processes(int num_ranks, const std::function<void(const WorldOptions& world)>& rank) {
  const int call = num_calls++;
  if (const char* wanted = std::getenv(kCall); wanted != nullptr) {
    if (std::to_string(call) != wanted) return;
    const int number = std::atoi(std::getenv(kRank));  // NOLINT(cert-err34-c): written above
    run_as_rank(number, num_ranks, std::getenv(kFolder), rank);
  }
  run_all(num_ranks, [call](int number, const std::filesystem::path& folder) {
    return start_rank(number, call, folder);
  });
}

void run_in_forks(int num_ranks, const std::function<void(const WorldOptions& world)>& rank) {
  run_all(num_ranks, [&](int number, const std::filesystem::path& folder) {
    return fork_rank(number, num_ranks, folder, rank);
  });
}

}  // namespace penstock
