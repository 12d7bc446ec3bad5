#include "penstock/run/transport/internal/size_class.h"

#include <algorithm>
#include <bit>

namespace penstock {

SizeClass size_class_of(std::size_t size) {
  constexpr std::size_t kSmallest = 256;
  constexpr unsigned kStepBits = 2;  // four steps per doubling
  const std::size_t least = std::max(size, kSmallest);
  const auto exponent = static_cast<unsigned>(std::bit_width(least - 1) - 1);
  const std::size_t step = std::size_t{1} << (exponent - kStepBits);
  const std::size_t bytes = (least + step - 1) / step * step;
  return {.bytes = bytes, .number = (std::size_t{exponent} << kStepBits) + bytes / step};
}

}  // namespace penstock
