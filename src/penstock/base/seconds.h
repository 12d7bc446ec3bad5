#pragma once

#include <chrono>

namespace penstock {

// For messages.
inline double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace penstock
