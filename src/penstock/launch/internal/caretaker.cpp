#include "penstock/launch/internal/caretaker.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

// What is told over the pipe: a group to watch, the negative of one to forget, or this.
constexpr pid_t kGoHome = 0;

[[noreturn]] void take_care(int pipe, const std::string& folder) {
  setsid();  // what a terminal sends is for the launcher
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  std::set<pid_t> groups;
  pid_t number = 0;
  for (;;) {
    const ssize_t count = read(pipe, &number, sizeof(number));
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof(number))) break;
    if (number == kGoHome) _exit(0);
    if (number > 0) groups.insert(number);
    if (number < 0) groups.erase(-number);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  std::error_code ignored;  // what cannot be removed stays
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

Caretaker::Caretaker(const std::string& folder) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(fmt::format("cannot make a pipe ({})", std::strerror(errno)));
  }
  process_ = fork();
  if (process_ == 0) {
    close(ends[1]);
    take_care(ends[0], folder);
  }
  const int error = errno;
  close(ends[0]);
  pipe_ = ends[1];
  if (process_ > 0) return;
  close(pipe_);
  throw Error(fmt::format("cannot start a process ({})", std::strerror(error)));
}

Caretaker::~Caretaker() {
  tell(kGoHome);
  close(pipe_);
  waitpid(process_, nullptr, 0);
}

void Caretaker::watch(pid_t group) const {
  tell(group);
}

void Caretaker::forget(pid_t group) const {
  tell(-group);
}

void Caretaker::tell(pid_t number) const {
  // If it was killed itself, there is nobody to tell; SIGPIPE is ignored by the launcher.
  [[maybe_unused]] const ssize_t written = write(pipe_, &number, sizeof(number));
}

}  // namespace penstock
