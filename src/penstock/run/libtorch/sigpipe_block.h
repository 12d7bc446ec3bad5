#pragma once

#include <csignal>

namespace penstock {

// Keeps SIGPIPE from the calling thread while it lives, and from threads made meanwhile for ever.
// Gloo writes to its sockets in a way that raises this signal if the other end is gone, and the
// signal ends the process; Python ignores it, so nobody has noticed there. What this program does
// with it stays as it is.
class SigpipeBlock {
 public:
  // Three system calls in all, none if it is not needed.
  explicit SigpipeBlock(bool is_needed = true) noexcept;
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;
  SigpipeBlock(SigpipeBlock&&) = delete;
  SigpipeBlock& operator=(SigpipeBlock&&) = delete;
  ~SigpipeBlock();

 private:
  bool is_needed_;
  sigset_t before_{};
  bool had_one_ = false;  // that was raised before, and is for the owner of the thread
};

// Whether this program ignores SIGPIPE, so that it need not be kept from any thread.
bool is_sigpipe_ignored() noexcept;

}  // namespace penstock
