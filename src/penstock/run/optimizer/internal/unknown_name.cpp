#include "penstock/run/optimizer/internal/unknown_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

void throw_unknown_name(std::string_view what, std::string_view name,
                        std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(name, known);
  throw ArgumentError(
      nearest.empty()
          ? fmt::format("unknown {} {}; known are {}", what, quote(name), fmt::join(known, ", "))
          : fmt::format("unknown {} {}; did you mean {}?", what, quote(name), quote(nearest)));
}

}  // namespace penstock
