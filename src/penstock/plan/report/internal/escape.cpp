#include "penstock/plan/report/internal/escape.h"

#include <cstddef>

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_continuation(std::string_view text, std::size_t index) {
  return index < text.size() && (static_cast<unsigned char>(text[index]) & 0xC0U) == 0x80U;
}

// The length of the UTF-8 character that `text` starts with; 0 if it starts with none.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const unsigned char second = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return is_continuation(text, 1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool is_overlong = first == 0xE0 && second < 0xA0;
    const bool is_surrogate = first == 0xED && second >= 0xA0;
    if (is_overlong || is_surrogate) return 0;
    return is_continuation(text, 1) && is_continuation(text, 2) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool is_overlong = first == 0xF0 && second < 0x90;
    const bool is_too_large = first == 0xF4 && second >= 0x90;
    if (is_overlong || is_too_large) return 0;
    return is_continuation(text, 1) && is_continuation(text, 2) && is_continuation(text, 3) ? 4 : 0;
  }
  return 0;
}

// Calls `append` with every character of `text`, broken ones as U+FFFD.
template <typename Append>
void for_each_character(std::string_view text, Append&& append) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    append(length == 0 ? kReplacement : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

std::string_view escaped_markup(std::string_view character) {
  if (character == "&") return "&amp;";
  if (character == "<") return "&lt;";
  if (character == ">") return "&gt;";
  if (character == "\"") return "&quot;";
  if (character == "'") return "&#39;";
  const bool is_space = character == "\t" || character == "\n" || character == "\r";
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x20 || first == 0x7F) return is_space ? " " : kReplacement;
  // XML has no U+FFFE and no U+FFFF.
  if (character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF") return kReplacement;
  return character;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text,
                     [&](std::string_view character) { result += escaped_markup(character); });
  return result;
}

std::string quote_json(std::string_view text) {
  std::string result = "\"";
  result.reserve(text.size() + 2);
  for_each_character(text, [&](std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character == "\"" || character == "\\") {
      result += '\\';
      result += character;
    } else if (character == "\n") {
      result += "\\n";
      // "</script>" and "<!--" would end or change the element around the text.
    } else if (first < 0x20 || first == 0x7F || character == "<" || character == ">" ||
               character == "&") {
      result += fmt::format("\\u{:04x}", first);
    } else {
      result += character;
    }
  });
  return result + '"';
}

}  // namespace penstock
