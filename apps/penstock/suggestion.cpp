#include "suggestion.h"

#include <fmt/format.h>

#include "penstock/base/text.h"

namespace penstock {

std::string suggestion(std::string_view text, std::span<const std::string_view> candidates) {
  const std::string_view nearest = nearest_name(text, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest));
}

}  // namespace penstock
