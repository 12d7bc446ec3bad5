#include "option_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/text.h"
#include "suggestion.h"

namespace penstock {

CLI::Option* expect_count(CLI::Option* option, CountRange range) {
  // CLI11 puts the option's name before what this returns.
  return option->check([range](const std::string& text) -> std::string {
    int count = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    const bool is_number = error == std::errc() && rest == end;
    if (is_number && count >= range.smallest && count <= range.largest) return "";
    return fmt::format("expected a whole number from {} to {}, found {}", range.smallest,
                       range.largest, quote(text));
  });
}

std::vector<double> parse_numbers(std::string_view text, std::size_t count) {
  std::vector<double> numbers;
  const char* place = text.data();
  const char* const end = text.data() + text.size();
  while (numbers.size() < count) {
    double number = 0;
    const auto [rest, error] = std::from_chars(place, end, number);
    if (error != std::errc() || !std::isfinite(number) || number < 0) return {};
    numbers.push_back(number);
    const bool is_last = numbers.size() == count;
    if (is_last) return rest == end ? numbers : std::vector<double>();
    if (rest == end || *rest != ',') return {};
    place = rest + 1;
  }
  return numbers;
}

CLI::Option* expect_numbers(CLI::Option* option, std::string_view example) {
  return option->check([example](const std::string& text) -> std::string {
    const auto count =
        static_cast<std::size_t>(1 + std::count(example.begin(), example.end(), ','));
    if (!parse_numbers(text, count).empty()) return "";
    return fmt::format(
        "expected {}, for example {}, found {}",
        count == 1 ? "a number from 0 up" : fmt::format("{} numbers from 0 up", count), example,
        quote(text));
  });
}

CLI::Option* expect_number(CLI::Option* option, NumberRange range) {
  return option->check([range](const std::string& text) -> std::string {
    const std::vector<double> numbers = parse_numbers(text, 1);
    const bool is_in_range =
        !numbers.empty() && numbers.front() >= range.smallest && numbers.front() <= range.largest;
    if (is_in_range) return "";
    return fmt::format("expected a number from {} to {}, found {}", range.smallest, range.largest,
                       quote(text));
  });
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const std::size_t comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

CLI::Option* expect_names(CLI::Option* option) {
  return option->check([](const std::string& text) -> std::string {
    const std::vector<std::string> names = split_list(text);
    const auto empty = std::find(names.begin(), names.end(), "");
    if (empty == names.end()) return "";
    return fmt::format("expected names with commas between them, found {}, whose name {} is empty",
                       quote(text), empty - names.begin() + 1);
  });
}

CLI::Option* expect_choice(CLI::Option* option, std::initializer_list<std::string_view> choices) {
  return option->check([names = std::vector(choices)](const std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return "";
    const std::span<const std::string_view> all_but_last(names.data(), names.size() - 1);
    return fmt::format("expected {}{}{}, found {}{}", fmt::join(all_but_last, ", "),
                       all_but_last.empty() ? "" : " or ", names.back(), quote(text),
                       suggestion(text, names));
  });
}

}  // namespace penstock
