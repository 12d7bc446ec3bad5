#include "sibling_ranks.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(fmt::format("cannot make a folder {}: {}", name, std::strerror(errno)));
  }
  return name;
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
  command.add_option("--sibling-folder", flags.folder)->group(kHidden);
}

SiblingRanks::SiblingRanks(const SiblingFlags& flags, int num_ranks)
    : folder_(flags.folder.empty() ? make_folder() : std::filesystem::path(flags.folder)) {
  world_ = {.rank = flags.rank,
            .size = num_ranks,
            .local_rank = flags.rank,
            .store_file = folder_ / "store"};
  if (flags.rank != 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  for (int rank = 1; rank < num_ranks; ++rank) start(rank);
}

void SiblingRanks::start(int rank) {
  std::vector<std::string> arguments = own_command_line();
  arguments.push_back(fmt::format("--sibling-rank={}", rank));
  arguments.push_back(fmt::format("--sibling-folder={}", folder_.string()));
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  const int error =
      posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ);
  if (error != 0) {
    throw Error(fmt::format("cannot start a process for rank {}: {}", rank, std::strerror(error)));
  }
  processes_.push_back(process);
}

SiblingRanks::~SiblingRanks() {
  if (world_.rank != 0) return;
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (const pid_t process : processes_) {
    while (waitpid(process, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= end) kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace penstock
