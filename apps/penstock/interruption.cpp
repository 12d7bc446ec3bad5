#include "interruption.h"

#include <csignal>

namespace penstock {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

void take_note(int signal) {
  caught_signal = signal;
  std::signal(signal, SIG_DFL);  // whoever insists is obeyed
}

}  // namespace

void catch_interruptions(Interrupted reaction) {
  const bool takes_note = reaction == Interrupted::TakesNote;
  std::signal(SIGINT, takes_note ? take_note : SIG_IGN);
  std::signal(SIGTERM, takes_note ? take_note : SIG_IGN);
}

int interruption() {
  return caught_signal;
}

}  // namespace penstock
