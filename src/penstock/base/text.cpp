#include "penstock/base/text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace penstock {
namespace {

bool is_separator(char letter) {
  return letter == '-' || letter == '_' || letter == ' ';
}

std::string folded(std::string_view name) {
  std::string result;
  result.reserve(name.size());
  for (const char letter : name) {
    if (is_separator(letter)) continue;
    const bool is_upper = letter >= 'A' && letter <= 'Z';
    result.push_back(is_upper ? static_cast<char>(letter - 'A' + 'a') : letter);
  }
  return result;
}

// Optimal string alignment: an exchange of neighbours costs one, so "1fb1" is one from "1f1b".
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last(to.size() + 1);
  std::vector<std::size_t> last(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t column = 0; column <= to.size(); ++column) last[column] = column;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool exchanged = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (exchanged) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

}  // namespace

std::string quote(std::string_view text, std::size_t max_length) {
  std::string result = "\"";
  for (const char letter : text.substr(0, max_length)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += letter;
    }
  }
  result += text.size() > max_length ? "...\"" : "\"";
  return result;
}

bool same_name(std::string_view left, std::string_view right) {
  return folded(left) == folded(right);
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  // A name from outside may be megabytes long; no candidate resembles that.
  constexpr std::size_t kLongestName = 64;
  if (name.size() > kLongestName) return {};
  const std::string wanted = folded(name);
  std::string_view nearest;
  std::size_t best = std::max<std::size_t>(2, wanted.size() / 2) + 1;
  for (const std::string_view candidate : candidates) {
    const std::string offered = folded(candidate);
    // The beginning of a name is most likely meant to be that name.
    const bool is_beginning = wanted.size() >= 2 && offered.starts_with(wanted);
    const std::size_t distance = is_beginning ? 0 : edit_distance(wanted, offered);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string counted(long long count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

}  // namespace penstock
