#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "penstock/launch/line_prefixer.h"
#include "penstock/launch/rank_environment.h"

namespace penstock {

// A stream that a rank writes to and the launcher copies to its own.
struct RankStream {
  int descriptor = -1;  // to read from; -1 once the rank has closed it
  int target = -1;      // where the lines go
  LinePrefixer lines;
};

// How a process has ended: by itself, or by a signal.
struct ProcessEnd {
  int status = 0;
  int signal = 0;

  // As a shell has it: 128 + the signal for a process that was killed.
  int exit_code() const { return signal == 0 ? status : 128 + signal; }
};

// "exited with status 3", "was killed by signal 9 (SIGKILL)".
std::string to_string(const ProcessEnd& end);

// A rank that was started: a process group of its own, which dies with the launcher.
struct RankProcess {
  int rank = 0;
  pid_t pid = 0;
  std::optional<ProcessEnd> end = {};  // once it does not run any more
  std::vector<RankStream> streams = {};
};

// Starts `program` with its streams connected to the launcher and nothing to read. `prefixes` are
// for its standard output and error. Throws Error if the program cannot be started.
RankProcess start_rank(int rank, const std::vector<std::string>& program,
                       const Environment& environment, const std::vector<std::string>& prefixes);

// How `pid`, a child, has ended, if it has. It stays a zombie, so that nobody else gets its id.
std::optional<ProcessEnd> look_for_end(pid_t pid);

// Waits for the end of `pid`, a child, and gives its id back.
void forget_process(pid_t pid);

}  // namespace penstock
