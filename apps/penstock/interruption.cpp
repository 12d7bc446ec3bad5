#include "interruption.h"

#include <csignal>

namespace penstock {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

void take_note(int signal) {
  caught_signal = signal;
  std::signal(signal, SIG_DFL);  // whoever insists is obeyed
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
