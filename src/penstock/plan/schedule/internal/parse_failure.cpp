#include "penstock/plan/schedule/internal/parse_failure.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kLargestInt = std::numeric_limits<int>::max();

int saturated(std::size_t count) {
  return static_cast<int>(std::min(count, kLargestInt));
}

}  // namespace

void throw_parse_error(std::string_view text, std::size_t offset, const std::string& source_name,
                       const std::string& problem) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t last_line_end = before.rfind('\n');
  const std::size_t line_begin = last_line_end == std::string_view::npos ? 0 : last_line_end + 1;
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  throw ParseError(source_name, saturated(line), saturated(before.size() - line_begin + 1),
                   problem);
}

std::string_view checked_file_text(std::string_view text, const std::string& source_name) {
  if (text.size() > kLargestInt) {
    throw ParseError(source_name, 1, 1,
                     fmt::format("the text has {} bytes; the most that can be read are {}",
                                 text.size(), kLargestInt));
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string idle_in_lowered_problem() {
  return "idle slot in a lowered schedule, which has sends, receives or parameter actions; remove "
         "the empty cell";
}

}  // namespace penstock
