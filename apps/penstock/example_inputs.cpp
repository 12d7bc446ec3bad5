#include "example_inputs.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 8> kTypes = {{
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},
    {"int32", at::kInt},
    {"uint8", at::kByte},
    {"bool", at::kBool},
}};

[[noreturn]] void complain(const std::string& description) {
  throw ArgumentError(fmt::format(
      "cannot make an example input of {}; expected sizes and maybe a name and a type, such as "
      "4x16, 4x16:int64 or mask=4x16:bool",
      quote(description)));
}

at::ScalarType parse_type(std::string_view text, const std::string& description) {
  for (const auto& [name, type] : kTypes) {
    if (name == text) return type;
  }
  complain(description);
}

std::vector<std::int64_t> parse_sizes(std::string_view text, const std::string& description) {
  std::vector<std::int64_t> sizes;
  if (text == "scalar") return sizes;
  for (;;) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1 || size > (std::int64_t{1} << 31)) complain(description);
    sizes.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return sizes;
    if (text.front() != 'x') complain(description);
    text.remove_prefix(1);
  }
}

}  // namespace

Microbatch make_example_inputs(const std::vector<std::string>& descriptions) {
  Microbatch example;
  for (const std::string& description : descriptions) {
    std::string_view text = description;
    std::string_view name;
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
      name = text.substr(0, equals);
      if (name.empty()) complain(description);
      text.remove_prefix(equals + 1);
    }
    at::ScalarType type = at::kFloat;
    if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
      type = parse_type(text.substr(colon + 1), description);
      text = text.substr(0, colon);
    }
    const std::vector<std::int64_t> sizes = parse_sizes(text, description);
    at::Tensor value =
        at::isFloatingType(type) ? at::randn(sizes).to(type) : at::zeros(sizes, type);
    if (name.empty()) {
      example.args.emplace_back(std::move(value));
    } else {
      example.kwargs.emplace(name, std::move(value));
    }
  }
  return example;
}

}  // namespace penstock
