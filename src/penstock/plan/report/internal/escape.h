#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Text as the content or an attribute of an HTML or SVG element. Control characters, which XML
// cannot hold, and bytes that are not UTF-8 become U+FFFD.
std::string escape_markup(std::string_view text);

// Text as a JSON string, quotes included, that may stand inside of a <script> element.
std::string quote_json(std::string_view text);

}  // namespace penstock
