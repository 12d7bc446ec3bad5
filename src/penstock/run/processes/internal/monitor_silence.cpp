#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/seconds.h"
#include "penstock/run/processes/internal/monitor_state.h"
#include "penstock/run/processes/process_ranks.h"

// What a monitor does when the store does not answer: its holder is stopped or cut off, or somebody
// keeps it busy.
namespace penstock {
namespace {

using std::chrono::milliseconds;

constexpr auto kTellingTime = milliseconds(500);  // for the others to say where they are
constexpr auto kReadingTime = milliseconds(300);  // for them to read where this rank is
constexpr auto kSilenceReportTime = kTellingTime + kReadingTime + milliseconds(100);

constexpr const char* kSilence = "/silence";                 // behind the keys of the group
constexpr const char* kSilentPosition = "silence/position";  // topics
constexpr const char* kSilentRead = "silence/read";

}  // namespace

// ---- the watchdog ----

void Monitor::State::guard_store() {
  std::unique_lock lock(mutex_);
  while (!is_ending_ && failure_.empty()) {
    changed_.wait_for(lock, kTick, [&] { return is_ending_ || !failure_.empty(); });
    if (is_store_thread_home_) return;
    // Counted by its own ticks, so that a process that was stopped does not blame the others.
    silence_ = std::exchange(is_answered_, false) ? std::chrono::nanoseconds() : silence_ + kTick;
    if (is_store_suspicious() && standby_ && standby_use_ == StandbyUse::None) {
      standby_use_ = StandbyUse::Served;
      std::thread([state = shared_from_this()] { state->serve_standby(); }).detach();
    } else if (!is_store_suspicious() && standby_use_ == StandbyUse::Lost) {
      standby_use_ = StandbyUse::None;  // it may be back next time
    }
    const std::chrono::nanoseconds patience = this->patience();
    if (silence_ < patience) continue;
    changed_.wait_for(lock, kSilenceReportTime,
                      [&] { return !failure_.empty() || standby_use_ != StandbyUse::Served; });
    lock.unlock();
    fail_alone(patience);
    return;
  }
}

bool Monitor::State::is_store_suspicious() const {
  constexpr std::chrono::nanoseconds kSuspicion = milliseconds(500);
  return silence_ >= std::min(kSuspicion, patience() / 2);
}

// ---- the standby thread ----

// Stays as long as the store is silent. Who has waited for long enough asks all others that wait,
// too; each of them tells where it is, and makes the report for itself.
void Monitor::State::serve_standby() {
  StandbyUse end = StandbyUse::None;
  try {
    const std::unique_ptr<Store> standby = standby_();
    if (const auto silence = wait_for_silence(*standby)) {
      fail_without_store(*silence, gather_positions(*standby));
    }
  } catch (const std::exception&) {
    // Its holder is gone, too, or cannot be reached from here: the watchdog makes a report alone.
    end = StandbyUse::Lost;
  }
  const std::lock_guard lock(mutex_);
  standby_use_ = end;
  changed_.notify_all();
}

// How long it has been silent, if that is too long for any rank of the group. Nothing if the store
// is back, or nobody wants to know any more.
std::optional<std::chrono::nanoseconds> Monitor::State::wait_for_silence(Store& standby) {
  const std::string key = keys_ + kSilence;
  for (;;) {
    bool is_too_long = false;
    std::chrono::nanoseconds silence;
    {
      std::unique_lock lock(mutex_);
      const bool is_over = changed_.wait_for(
          lock, kTick, [&] { return is_ending_ || !failure_.empty() || !is_store_suspicious(); });
      if (is_over) return std::nullopt;
      silence = std::min(silence_, patience());
      is_too_long = silence_ >= patience();
    }
    if (is_too_long) standby.set(key, name());
    if (is_too_long || standby.find(key)) return silence;
  }
}

std::vector<RankPosition> Monitor::State::gather_positions(Store& standby) {
  std::vector<RankPosition> positions(names_.size());
  positions[static_cast<std::size_t>(rank_)] = position();
  standby.set(key(kSilentPosition, rank_), to_text(position()));
  const auto wait_for_all = [&](milliseconds patience, const auto& has_come) {
    const Clock::time_point end = Clock::now() + patience;
    const auto have_all_come = [&] {
      bool have_come = true;
      for (int rank = 0; rank < group_.size(); ++rank) have_come = has_come(rank) && have_come;
      return have_come;
    };
    while (!have_all_come() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  };
  wait_for_all(kTellingTime, [&](int rank) {
    RankPosition& position = positions[static_cast<std::size_t>(rank)];
    if (!position.is_known)
      position = parse_position(standby.find(key(kSilentPosition, rank)).value_or(""));
    return position.is_known;
  });
  standby.set(key(kSilentRead, rank_), "");
  if (!holds_standby_) return positions;
  // What they have not read by then is gone with this process.
  wait_for_all(kReadingTime, [&](int rank) {
    return !positions[static_cast<std::size_t>(rank)].is_known ||
           standby.find(key(kSilentRead, rank));
  });
  return positions;
}

// ---- the report ----

std::string Monitor::State::describe_silence(std::chrono::nanoseconds silence) const {
  // A rank that is stopped in the middle of a message keeps the store from answering anybody.
  std::string why = holds_store_ ? "held up by another rank" : "stopped, or cut off";
  for (const int rank : host_.stopped()) {
    if (rank == 0) continue;  // that is the holder itself
    why = fmt::format("{} is stopped", names_[static_cast<std::size_t>(group_.rank_of(rank))]);
  }
  return fmt::format("{}, which holds what the ranks share, has not answered for {:.3g} s: {}",
                     store_holder_, seconds(silence), why);
}

void Monitor::State::fail_without_store(std::chrono::nanoseconds silence,
                                        const std::vector<RankPosition>& positions) {
  std::string reason = describe_silence(silence);
  if (const std::optional<WatchedStep> step = this->step()) {
    reason += describe_positions(*step->program, positions, names_);
    leave_replay(positions, reason);
  }
  fail(reason);
}

void Monitor::State::fail_alone(std::chrono::nanoseconds silence) {
  if (!failure().empty()) return;
  std::string reason = describe_silence(silence);
  {
    const std::lock_guard lock(mutex_);  // so that the step does not end meanwhile
    if (step_) {
      std::vector<RankPosition> positions(names_.size());
      const RankPosition own = position_now();
      positions[static_cast<std::size_t>(rank_)] = own;
      reason += fmt::format("; {} {}", name(), describe_alone(*step_->program, rank_, own, names_));
      if (!replay_path_.empty()) {
        write_replay_file(
            own_replay_path(replay_path_, group_.ranks[static_cast<std::size_t>(rank_)]),
            write_replay(*step_->program, positions, reason));
      }
    }
  }
  fail(reason);
}

}  // namespace penstock
