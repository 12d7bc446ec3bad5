#pragma once

#include <csignal>
#include <vector>

#include <sys/signalfd.h>
#include <unistd.h>

#include "penstock/base/error.h"

namespace penstock {

// The signals that the launcher reads instead of being interrupted by them. SIGHUP stays ignored if
// it was, which is what nohup is for. SIGINT and SIGQUIT are read even so: shells ignore them for
// all that runs in the background of a script, and who sends them by kill means it.
class SignalReader {
 public:
  SignalReader() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2}) {
      sigaddset(&wanted, signal);
    }
    if (!is_ignored(SIGHUP)) sigaddset(&wanted, SIGHUP);
    sigprocmask(SIG_BLOCK, &wanted, &before_);
    std::signal(SIGPIPE, SIG_IGN);
    descriptor_ = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor_ < 0) throw Error("cannot read signals (signalfd)");
  }
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  SignalReader(SignalReader&&) = delete;
  SignalReader& operator=(SignalReader&&) = delete;
  ~SignalReader() {
    close(descriptor_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int descriptor() const { return descriptor_; }

  // The signals that have come, except for SIGCHLD.
  std::vector<int> take() const {
    std::vector<int> signals;
    signalfd_siginfo info = {};
    while (read(descriptor_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
    }
    return signals;
  }

 private:
  static bool is_ignored(int signal) {
    struct sigaction action = {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }

  sigset_t before_ = {};
  int descriptor_ = -1;
};

}  // namespace penstock
