#include "interruption.h"

#include <atomic>
#include <chrono>
#include <csignal>

#include "penstock/base/second_signal.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t caught_signal = 0;
std::atomic<Clock::rep> first_signal_at = 0;  // 0: never
static_assert(std::atomic<Clock::rep>::is_always_lock_free, "a signal handler uses it");

void take_note(int signal) {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep first = 0;
  if (first_signal_at.compare_exchange_strong(first, now)) {
    caught_signal = signal;
  } else if (Clock::duration(now - first) >= kSecondSignalAfter) {
    std::signal(signal, SIG_DFL);  // whoever insists is obeyed
    std::raise(signal);
  }
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_interruptions(Interrupted reaction) {
  const bool takes_note = reaction == Interrupted::TakesNote;
  const auto react = takes_note ? take_note : SIG_IGN;
  std::signal(SIGINT, react);
  std::signal(SIGTERM, react);
  if (!is_ignored(SIGHUP)) std::signal(SIGHUP, react);
}

int interruption() {
  return caught_signal;
}

}  // namespace penstock
