#include "byte_size.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr std::pair<std::string_view, double> kUnits[] = {
    {"b", 1},           {"kb", 1e3},           {"mb", 1e6},
    {"gb", 1e9},        {"tb", 1e12},          {"kib", 1024.0},
    {"mib", 1048576.0}, {"gib", 1073741824.0}, {"tib", 1099511627776.0},
};

}  // namespace

std::optional<ByteSize> parse_byte_size(std::string_view text) {
  constexpr double kMost = 9e18;
  ByteSize size;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size.number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (!unit.empty()) {
    for (const auto& [name, bytes] : kUnits) {
      if (!same_name(unit, name)) continue;
      size.unit_bytes = bytes;
      size.has_unit = true;
    }
    if (!size.has_unit) return std::nullopt;
  }
  if (!(size.bytes() >= 0) || size.bytes() > kMost) return std::nullopt;
  return size;
}

CLI::Option* expect_byte_size(CLI::Option* option) {
  return option->check([](const std::string& text) -> std::string {
    if (parse_byte_size(text)) return "";
    return fmt::format("expected a size from 0 up, for example 3209216 or 1.5GiB, found {}",
                       quote(text));
  });
}

}  // namespace penstock
