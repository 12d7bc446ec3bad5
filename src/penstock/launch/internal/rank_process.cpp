#include "penstock/launch/internal/rank_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(fmt::format("cannot make a pipe ({})", std::strerror(errno)));
  }
  return {ends[0], ends[1]};
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child does between fork and exec; returns only if it fails.
void become_rank(pid_t launcher, const std::array<Pipe, 2>& outputs, char* const* words,
                 char* const* variables) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before it could be watched
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(outputs[0].write_end, STDOUT_FILENO) < 0 ||
      dup2(outputs[1].write_end, STDERR_FILENO) < 0) {
    return;
  }
  execvpe(words[0], words, variables);
}

}  // namespace

RankProcess start_rank(int rank, const std::vector<std::string>& program,
                       const Environment& environment, const std::vector<std::string>& prefixes) {
  std::vector<std::string> words = program;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment)
    variables.push_back(fmt::format("{}={}", name, value));
  const std::vector<char*> word_pointers = pointers_to(words);
  const std::vector<char*> variable_pointers = pointers_to(variables);
  const std::array<Pipe, 2> outputs = {make_pipe(), make_pipe()};
  const Pipe problem = make_pipe();  // closed by a successful exec

  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become_rank(launcher, outputs, word_pointers.data(), variable_pointers.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(problem.write_end, &error, sizeof(error));
    _exit(127);
  }
  const int fork_error = errno;
  close(problem.write_end);
  for (const Pipe& output : outputs) close(output.write_end);
  int error = pid < 0 ? fork_error : 0;
  if (pid > 0) {
    setpgid(pid, pid);  // here too, so that it is done before anyone signals the group
    [[maybe_unused]] const ssize_t count = read(problem.read_end, &error, sizeof(error));
  }
  close(problem.read_end);
  if (error != 0) {
    for (const Pipe& output : outputs) close(output.read_end);
    if (pid > 0) waitpid(pid, nullptr, 0);
    throw Error(fmt::format("cannot start {} as rank {} ({})", quote(program.front(), 200), rank,
                            std::strerror(error)));
  }
  RankProcess process{.rank = rank, .pid = pid, .streams = {}};
  for (std::size_t index = 0; index < outputs.size(); ++index) {
    fcntl(outputs[index].read_end, F_SETFL, O_NONBLOCK);
    process.streams.push_back({.descriptor = outputs[index].read_end,
                               .target = index == 0 ? STDOUT_FILENO : STDERR_FILENO,
                               .lines = LinePrefixer(prefixes[index])});
  }
  return process;
}

std::string to_string(const ProcessEnd& end) {
  if (end.signal == 0) return fmt::format("exited with status {}", end.status);
  const char* name = sigabbrev_np(end.signal);
  return name == nullptr ? fmt::format("was killed by signal {}", end.signal)
                         : fmt::format("was killed by signal {} (SIG{})", end.signal, name);
}

std::optional<ProcessEnd> look_for_end(pid_t pid) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return ProcessEnd{.status = info.si_status};
  return ProcessEnd{.signal = info.si_status};
}

void forget_process(pid_t pid) {
  waitpid(pid, nullptr, 0);
}

}  // namespace penstock
