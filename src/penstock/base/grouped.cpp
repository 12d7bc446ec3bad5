#include "penstock/base/grouped.h"

namespace penstock {

std::string grouped(long long number) {
  constexpr std::size_t kGroup = 3;
  std::string text = std::to_string(number);
  const std::size_t first_digit = number < 0 ? 1 : 0;
  for (std::size_t place = text.size(); place > first_digit + kGroup;) {
    place -= kGroup;
    text.insert(place, " ");
  }
  return text;
}

}  // namespace penstock
