#pragma once

#include <cstddef>

namespace penstock {

// Sizes in which memory is kept for use again, four per doubling: at most a quarter is wasted, and
// messages that differ a little share memory.
struct SizeClass {
  std::size_t bytes = 0;   // a multiple of 64
  std::size_t number = 0;  // among all classes
};

SizeClass size_class_of(std::size_t size);

}  // namespace penstock
