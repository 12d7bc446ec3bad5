#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "penstock/run/threads/spin.h"
#include "penstock/run/threads/wait_policy.h"

namespace penstock {

// Like Doorbell, between processes: lies in memory that they share, and is all zero at first. One
// thread waits; any thread of any process rings, after it has changed what the waiter looks at.
class FutexDoorbell {
 public:
  // Returns true once `is_ready()` does, false if the policy's deadline passes before. A waiter
  // that is parked calls `look()` now and then, which may throw.
  template <typename Condition, typename Look>
  bool wait(const Condition& is_ready, const WaitPolicy& policy, const Look& look);

  // Wakes the waiter, if there is one. No system call if nobody is parked.
  void ring() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (is_parked_.load(std::memory_order_relaxed) == 0) return;
    is_parked_.store(0);
    wake();
  }

 private:
  void park(std::chrono::nanoseconds longest) noexcept;
  void wake() noexcept;

  alignas(64) std::atomic<std::uint32_t> is_parked_;
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
};

template <typename Condition, typename Look>
bool FutexDoorbell::wait(const Condition& is_ready, const WaitPolicy& policy, const Look& look) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLookInterval = std::chrono::milliseconds(20);
  if (is_ready()) return true;
  const Clock::time_point end = Clock::now() + policy.deadline;
  if (spin_until(is_ready, policy.spin)) return true;
  for (;;) {
    is_parked_.store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with that of ring()
    const bool is_late = Clock::now() >= end;
    if (!is_late && !is_ready()) {
      park(std::min<std::chrono::nanoseconds>(end - Clock::now(), kLookInterval));
    }
    is_parked_.store(0);
    if (is_ready()) return true;
    if (is_late) return false;
    look();
  }
}

}  // namespace penstock
