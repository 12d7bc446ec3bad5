#pragma once

#include <span>
#include <string_view>

namespace penstock {

// Throws the ArgumentError of a name that is not known, with the nearest one or all there are.
// `what` is what it should be the name of.
[[noreturn]] void throw_unknown_name(std::string_view what, std::string_view name,
                                     std::span<const std::string_view> known);

}  // namespace penstock
