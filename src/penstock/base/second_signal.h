#pragma once

#include <chrono>

namespace penstock {

// A signal that follows another one sooner than this is no second wish to end: timeout(1) sends
// each to its child and to the child's group, so the child gets it twice.
inline constexpr std::chrono::milliseconds kSecondSignalAfter(500);

}  // namespace penstock
