#pragma once

#include <chrono>

namespace penstock {

// Tells the processor that this is a waiting loop.
inline void pause_spinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Asks `is_ready()` again and again. Returns true once it is, false when the time is over.
template <typename Condition>
bool spin_until(const Condition& is_ready, std::chrono::nanoseconds budget) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPausesPerClockReading = 64;
  if (is_ready()) return true;
  if (budget <= std::chrono::nanoseconds::zero()) return false;
  const Clock::time_point end = Clock::now() + budget;
  do {
    for (int count = 0; count < kPausesPerClockReading; ++count) {
      if (is_ready()) return true;
      pause_spinning();
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace penstock
