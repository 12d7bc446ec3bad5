#pragma once

#include <chrono>
#include <string>

#include <CLI/CLI.hpp>

namespace penstock {

// What commands take whose ranks can be processes.
struct ProcessFlags {
  double deadline_s = 0;  // 0: the default of the command
  double join_s = 0;      // 0: that of WorldOptions
  std::string replay_path;

  std::chrono::milliseconds deadline(std::chrono::milliseconds otherwise) const;
  std::chrono::milliseconds join_timeout(std::chrono::milliseconds otherwise) const;
};

// Adds --deadline, --join-timeout and --replay, in `group` of the help, which says what is `usual`.
void add_process_options(CLI::App& command, ProcessFlags& flags, const std::string& usual,
                         const std::string& group);

// Throws ArgumentError if --replay was given, although ranks are threads.
void require_no_replay(const ProcessFlags& flags);

}  // namespace penstock
