#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

// `text` in double quotes, ready for an error message: unprintable bytes are escaped and
// anything beyond `max_length` bytes is replaced by an ellipsis.
std::string quote(std::string_view text, std::size_t max_length = 40);

// Case-insensitive for ASCII letters; '-', '_' and ' ' do not count: "zb_h1" equals "ZB-H1".
bool same_name(std::string_view left, std::string_view right);

// The candidate with the smallest edit distance to `name` as same_name() sees names, or an empty
// view when even that one has little in common with it.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

// "1 microbatch", "3 microbatches": a count with its noun.
std::string counted(long long count, std::string_view singular, std::string_view plural);

}  // namespace penstock
