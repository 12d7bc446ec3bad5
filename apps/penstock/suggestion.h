#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

// `; did you mean "csv"?` with the candidate nearest to `text`, or nothing if none is near.
std::string suggestion(std::string_view text, std::span<const std::string_view> candidates);

}  // namespace penstock
