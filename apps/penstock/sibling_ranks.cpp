#include "sibling_ranks.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "program.h"
#include "schedule_io.h"

namespace penstock {
namespace {

// For a process that was started by `parent`: ends it with that one. Nobody is told if `parent` has
// ended before, so that is looked up afterwards.
void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
}

}  // namespace

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

void add_sibling_flags(CLI::App& command, SiblingFlags& flags) {
  constexpr const char* kHidden = "";
  command.add_option("--sibling-rank", flags.rank)->group(kHidden);
  command.add_option("--sibling-store", flags.store)->group(kHidden);
  // Before anything else happens: the command itself begins when all options are read.
  command.add_option_function<pid_t>("--sibling-parent", end_with)->group(kHidden);
}

MemoryFile::MemoryFile() : number_(memfd_create("penstock", MFD_CLOEXEC)) {
  if (number_ < 0)
    throw Error(fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
}

MemoryFile::~MemoryFile() {
  close(number_);
}

void MemoryFile::write(const std::string& text) const {
  std::ofstream file(path(), std::ios::binary);
  file << text;
  if (!file.flush()) throw Error("cannot write a file in memory");
}

std::string MemoryFile::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), number_);
}

SiblingRanks::SiblingRanks(const SiblingFlags& flags, int num_ranks) {
  if (flags.store.empty()) store_.emplace();
  world_ = {.rank = flags.rank,
            .size = num_ranks,
            .local_rank = flags.rank,
            .store_file = store_ ? store_->path() : flags.store};
  if (!store_) return;
  world_.look = [this] { require_alive(); };
  if (consumed_input()) {
    input_.emplace();
    input_->write(*consumed_input());
  }
  for (int rank = 1; rank < num_ranks; ++rank) start(rank);
}

void SiblingRanks::start(int rank) {
  std::vector<std::string> arguments = own_command_line();
  arguments.push_back(fmt::format("--sibling-rank={}", rank));
  arguments.push_back(fmt::format("--sibling-store={}", world_.store_file));
  arguments.push_back(fmt::format("--sibling-parent={}", getpid()));
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  posix_spawn_file_actions_t actions = {};
  posix_spawn_file_actions_init(&actions);
  const std::string input = input_ ? input_->path() : "/dev/null";
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  const int error =
      posix_spawn(&process, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(fmt::format("cannot start a process for rank {}: {}", rank, std::strerror(error)));
  }
  processes_.push_back(process);
}

void SiblingRanks::require_alive() const {
  for (std::size_t index = 0; index < processes_.size(); ++index) {
    siginfo_t info = {};
    // The destructor wants to find it, too.
    waitid(P_PID, static_cast<id_t>(processes_[index]), &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid == 0) continue;
    throw FailedRun(fmt::format(
        "rank {} (pid {}) {} {} before it could join", index + 1, processes_[index],
        info.si_code == CLD_EXITED ? "ended with status" : "was killed by signal", info.si_status));
  }
}

SiblingRanks::~SiblingRanks() {
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (const pid_t process : processes_) {
    while (waitpid(process, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= end) kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace penstock
