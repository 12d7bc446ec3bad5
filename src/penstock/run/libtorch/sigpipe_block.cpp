#include "penstock/run/libtorch/sigpipe_block.h"

#include <ctime>

namespace penstock {
namespace {

sigset_t sigpipe_alone() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  return signals;
}

}  // namespace

SigpipeBlock::SigpipeBlock(bool is_needed) noexcept : is_needed_(is_needed) {
  if (!is_needed_) return;
  const sigset_t sigpipe = sigpipe_alone();
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before_);
  if (sigismember(&before_, SIGPIPE) == 0) return;
  sigset_t pending;
  sigpending(&pending);
  had_one_ = sigismember(&pending, SIGPIPE) == 1;
}

SigpipeBlock::~SigpipeBlock() {
  if (!is_needed_) return;
  const sigset_t sigpipe = sigpipe_alone();
  const timespec at_once{};
  if (!had_one_) sigtimedwait(&sigpipe, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool is_sigpipe_ignored() noexcept {
  struct sigaction action = {};
  return sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace penstock
