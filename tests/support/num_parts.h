#pragma once

#include <cstddef>
#include <string_view>

namespace penstock {

// How often `part` occurs in `text`.
inline std::size_t num_parts(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace penstock
