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

// No deadline is longer, so that a hundred of them can be added to the time of any clock.
inline constexpr std::chrono::nanoseconds kLongestDeadline = std::chrono::hours(24 * 365);

// The policy for `num_threads` busy threads on the cores that the calling thread may run on: spins
// only if each has one. To be asked before threads are pinned.
WaitPolicy wait_policy_for(int num_threads, std::chrono::nanoseconds deadline);

}  // namespace penstock
