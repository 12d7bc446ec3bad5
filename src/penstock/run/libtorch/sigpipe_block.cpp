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

SigpipeBlock::SigpipeBlock() noexcept {
  const sigset_t sigpipe = sigpipe_alone();
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before_);
  if (sigismember(&before_, SIGPIPE) == 0) return;
  sigset_t pending;
  sigpending(&pending);
  had_one_ = sigismember(&pending, SIGPIPE) == 1;
}

SigpipeBlock::~SigpipeBlock() {
  const sigset_t sigpipe = sigpipe_alone();
  const timespec at_once{};
  if (!had_one_) sigtimedwait(&sigpipe, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace penstock
