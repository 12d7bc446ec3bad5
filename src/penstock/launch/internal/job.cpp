#include "penstock/launch/internal/job.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "penstock/base/second_signal.h"
#include "penstock/launch/internal/strays.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): unistd.h has it for GNU only

namespace penstock {
namespace {

Environment current_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::vector<std::string> prefixes_of(int rank) {
  constexpr int kNumColours = 6;
  const char* const refusal = std::getenv("NO_COLOR");
  const bool is_allowed = refusal == nullptr || *refusal == '\0';
  std::vector<std::string> prefixes;
  for (const int target : {STDOUT_FILENO, STDERR_FILENO}) {
    const bool has_colour = is_allowed && isatty(target) != 0;
    prefixes.push_back(has_colour
                           ? fmt::format("\033[3{}m[{}]\033[0m ", 1 + rank % kNumColours, rank)
                           : fmt::format("[{}] ", rank));
  }
  return prefixes;
}

// Means what the program makes of it, and not that the job is to end.
bool is_for_program(int signal) {
  return signal == SIGUSR1 || signal == SIGUSR2;
}

}  // namespace

Job::Job(const LaunchOptions& options, const Attempt& attempt, const SignalReader& signals,
         const Caretaker& caretaker, Output& output)
    : options_(options), signals_(signals), caretaker_(caretaker), output_(output) {
  const Environment inherited = current_environment();
  try {
    for (int local_rank = 0; local_rank < options.num_ranks; ++local_rank) {
      const int rank = options.node_rank * options.num_ranks + local_rank;
      ranks_.push_back(start_rank(rank, options.program,
                                  rank_environment(inherited, options, attempt, local_rank),
                                  prefixes_of(rank)));
      caretaker_.watch(ranks_.back().pid);
    }
  } catch (...) {
    end_all();
    throw;
  }
}

Job::~Job() {
  end_all();
}

void Job::run() {
  while (is_running()) {
    wait_for_news();
    // Before ends are looked for: the news of a later one is kept for the next turn.
    const std::vector<int> signals = signals_.take();
    note_ends();
    for (const int signal : signals) forward(signal);
    if (output_.is_broken() && !was_interrupted()) forward(SIGPIPE);
    if (deadline_ && Clock::now() >= *deadline_) press_harder();
  }
  drain();
}

bool Job::is_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return !rank.end; });
}

bool Job::has_open_streams() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) {
    return std::any_of(rank.streams.begin(), rank.streams.end(),
                       [](const RankStream& stream) { return stream.descriptor >= 0; });
  });
}

bool Job::is_readable(const RankStream& stream) const {
  return stream.descriptor >= 0 && output_.has_room(stream.target);
}

void Job::wait_for_news() {
  // poll() passes over negative descriptors.
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0},
                                {output_.descriptor(STDOUT_FILENO), POLLOUT, 0},
                                {output_.descriptor(STDERR_FILENO), POLLOUT, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const RankStream& stream : rank.streams) {
      if (is_readable(stream)) polled.push_back({stream.descriptor, POLLIN, 0});
    }
  }
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
    timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }
  poll(polled.data(), polled.size(), timeout);
  copy_output();
}

void Job::copy_output() {
  std::array<char, 1 << 16> buffer = {};
  output_.flush();
  for (RankProcess& rank : ranks_) {
    for (RankStream& stream : rank.streams) {
      if (!is_readable(stream)) continue;
      const ssize_t count = read(stream.descriptor, buffer.data(), buffer.size());
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count > 0) {
        output_.add(stream.target,
                    stream.lines.take({buffer.data(), static_cast<std::size_t>(count)}));
        continue;
      }
      output_.add(stream.target, stream.lines.finish());
      close(stream.descriptor);
      stream.descriptor = -1;
    }
  }
  output_.flush();
}

void Job::note_ends() {
  for (RankProcess& rank : ranks_) {
    if (rank.end) continue;
    rank.end = look_for_end(rank.pid);
    if (rank.end) note_end(rank);
  }
  forget_ended_strays(own_children());
}

void Job::note_end(const RankProcess& rank) {
  if (rank.end->exit_code() == 0 || exit_code_ != 0) return;
  if (was_interrupted()) {
    // What ranks make of a signal is up to them, and they may not agree.
    exit_code_ = ProcessEnd{.signal = interruption_}.exit_code();
    return;
  }
  exit_code_ = rank.end->exit_code();
  output_.say(fmt::format("rank {} (pid {}) {}", rank.rank, rank.pid, to_string(*rank.end)));
  deadline_ = Clock::now() + options_.grace;
}

void Job::forward(int signal) {
  if (is_for_program(signal)) {
    // What a rank has started may not expect it.
    for (const RankProcess& rank : ranks_) kill(rank.pid, signal);
    return;
  }
  const Clock::time_point now = Clock::now();
  if (was_interrupted() && now - interrupted_at_ < kSecondSignalAfter) return;
  signal_all(was_interrupted() ? SIGKILL : signal == SIGPIPE ? SIGTERM : signal);
  if (!was_interrupted()) {
    deadline_ = now + options_.grace;
    interrupted_at_ = now;
    interruption_ = signal;
  }
  is_terminated_ = is_terminated_ || signal == SIGTERM || signal == SIGPIPE;
}

void Job::press_harder() {
  if (is_terminated_) {
    signal_all(SIGKILL);
    deadline_.reset();
    return;
  }
  is_terminated_ = true;
  signal_all(SIGTERM);
  deadline_ = Clock::now() + options_.grace;
}

// Safe for ranks that have ended: end_all() alone frees their process ids.
void Job::signal_all(int signal) {
  for (const RankProcess& rank : ranks_) kill(-rank.pid, signal);
  // A stopped process keeps what it got until it goes on.
  for (const RankProcess& rank : ranks_) kill(-rank.pid, SIGCONT);
}

std::vector<pid_t> Job::own_children() const {
  std::vector<pid_t> children = {caretaker_.process_id()};
  for (const RankProcess& rank : ranks_) children.push_back(rank.pid);
  return children;
}

// Ends whatever the ranks have started and left behind, and copies the last words. Who reads them
// may take its time, unless a signal says that the job is over.
void Job::drain() {
  signal_all(SIGKILL);
  end_strays(own_children());
  constexpr auto kPatience = std::chrono::seconds(1);
  const Clock::time_point end = Clock::now() + kPatience;
  const auto is_worth_waiting = [&] {
    if (output_.is_empty() && !has_open_streams()) return false;
    return Clock::now() < end || (!was_interrupted() && !output_.is_empty());
  };
  while (is_worth_waiting()) {
    deadline_.reset();
    if (was_interrupted() || output_.is_empty()) deadline_ = end;
    wait_for_news();
    for (const int signal : signals_.take()) {
      if (is_for_program(signal)) continue;
      if (!was_interrupted()) interruption_ = signal;
      if (exit_code_ == 0) exit_code_ = ProcessEnd{.signal = interruption_}.exit_code();
      return;
    }
  }
}

void Job::end_all() {
  signal_all(SIGKILL);
  end_strays(own_children());
  for (RankProcess& rank : ranks_) {
    caretaker_.forget(rank.pid);  // before somebody else may get its id
    forget_process(rank.pid);
    for (RankStream& stream : rank.streams) {
      if (stream.descriptor >= 0) close(stream.descriptor);
    }
  }
  ranks_.clear();
}

}  // namespace penstock
