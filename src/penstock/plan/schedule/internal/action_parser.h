#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/plan/schedule/action.h"

namespace penstock {

// What is wrong with a text, at which of its bytes. A reader of files knows where the text is.
struct TextProblem {
  std::size_t offset = 0;
  std::string problem;
};

// `text` without the spaces and tabs around it.
inline std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char letter) { return letter == ' ' || letter == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Parses the whole of `text` into `action`, which must be idle. If this returns a problem, the
// value of `action` means nothing. Allocates for containers and problems only.
[[nodiscard]] std::optional<TextProblem> parse_action_into(std::string_view text, Action& action);

}  // namespace penstock
