#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "penstock/run/threads/spin.h"
#include "penstock/run/threads/wait_policy.h"

namespace penstock {

// Lets one thread wait for a condition that others bring about: they change the state the
// condition reads, then ring. Both must use sequentially consistent atomics for that state.
class Doorbell {
 public:
  // Returns true once `is_ready()` does, false if the policy's deadline passes before.
  template <typename Condition>
  bool wait(const Condition& is_ready, const WaitPolicy& policy);

  // Wakes the waiting thread, if there is one. Costs one load if nobody is parked.
  void ring();

 private:
  std::atomic<bool> is_parked_ = false;
  std::mutex mutex_;  // orders a ring after the check that came before parking
  std::condition_variable bell_;
};

inline void Doorbell::ring() {
  if (!is_parked_.load()) return;
  const std::lock_guard lock(mutex_);
  bell_.notify_all();
}

template <typename Condition>
bool Doorbell::wait(const Condition& is_ready, const WaitPolicy& policy) {
  using Clock = std::chrono::steady_clock;
  if (is_ready()) return true;
  const Clock::time_point begin = Clock::now();
  if (spin_until(is_ready, policy.spin)) return true;
  std::unique_lock lock(mutex_);
  is_parked_.store(true);
  const bool is_in_time = bell_.wait_until(lock, begin + policy.deadline, is_ready);
  is_parked_.store(false);
  return is_in_time;
}

}  // namespace penstock
