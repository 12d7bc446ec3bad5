#pragma once

#include <chrono>

namespace penstock {

// How a thread waits for another one. Waking a parked thread takes tens of microseconds, so a
// waiter first spins for a while; but never when threads outnumber cores, because it would then
// keep the very thread it waits for from running.
struct WaitPolicy {
  std::chrono::nanoseconds spin = std::chrono::microseconds(100);
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);  // for the whole wait
};

// The policy for `num_threads` busy threads on this machine: spins only if each has a core.
WaitPolicy wait_policy_for(int num_threads, std::chrono::nanoseconds deadline);

}  // namespace penstock
