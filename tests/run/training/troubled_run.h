#pragma once

#include <cstdint>

// The run that staggered steps are tried on: in some of its steps they cannot just be taken.
namespace penstock {

inline constexpr int kTroubledSteps = 9;
inline constexpr double kTroubledNorm = 50;  // the largest

// Its gradients are not finite, because of one microbatch.
inline bool is_bad(std::int64_t step) {
  return step == 3;
}

// Its gradients are too long.
inline bool is_long(std::int64_t step) {
  return step == 5 || step == 6 || step == 8;
}

}  // namespace penstock
