#pragma once

#include <atomic>

#include "penstock/base/error.h"

namespace penstock {

// Marks something as being in use, for a scope. It is for one caller at a time: a second one, on
// whatever thread, gets an ArgumentError with `problem`.
class OneCaller {
 public:
  OneCaller(std::atomic<bool>& is_in_use, const char* problem) : is_in_use_(is_in_use) {
    if (is_in_use_.exchange(true)) throw ArgumentError(problem);
  }
  OneCaller(const OneCaller&) = delete;
  OneCaller& operator=(const OneCaller&) = delete;
  OneCaller(OneCaller&&) = delete;
  OneCaller& operator=(OneCaller&&) = delete;
  ~OneCaller() { is_in_use_.store(false); }

 private:
  std::atomic<bool>& is_in_use_;
};

}  // namespace penstock
