#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "penstock/launch/internal/caretaker.h"
#include "penstock/launch/internal/output.h"
#include "penstock/launch/internal/rank_process.h"
#include "penstock/launch/internal/signal_reader.h"
#include "penstock/launch/launch_options.h"
#include "penstock/launch/rank_environment.h"

namespace penstock {

// One attempt: the ranks of this host from their start to their end.
class Job {
 public:
  Job(const LaunchOptions& options, const Attempt& attempt, const SignalReader& signals,
      const Caretaker& caretaker, Output& output);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  Job(Job&&) = delete;
  Job& operator=(Job&&) = delete;
  ~Job();

  // Returns when all have ended.
  void run();

  // Of the first rank that failed, or what the signal makes it that has ended the ranks.
  int exit_code() const { return exit_code_; }
  bool was_interrupted() const { return interruption_ != 0; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_running() const;
  bool has_open_streams() const;
  bool is_readable(const RankStream& stream) const;
  void wait_for_news();
  void copy_output();
  void note_ends();
  void note_end(const RankProcess& rank);
  void forward(int signal);
  void press_harder();
  void signal_all(int signal);
  std::vector<pid_t> own_children() const;
  void drain();
  void end_all();

  const LaunchOptions& options_;
  const SignalReader& signals_;
  const Caretaker& caretaker_;
  Output& output_;
  std::vector<RankProcess> ranks_;
  std::optional<Clock::time_point> deadline_;  // after which ranks are made to end
  int interruption_ = 0;                       // the first signal that was passed on to the ranks
  Clock::time_point interrupted_at_;           // when it was
  bool is_terminated_ = false;                 // ranks have got SIGTERM; SIGKILL is next
  int exit_code_ = 0;
};

}  // namespace penstock
