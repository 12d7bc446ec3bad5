#pragma once

#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>

namespace penstock {

// A size as people write it: "3209216", "1.5GiB", "40 GB". Units of 1024 have an i in them; case
// does not matter.
struct ByteSize {
  double number = 0;
  double unit_bytes = 1;
  bool has_unit = false;

  double bytes() const { return number * unit_bytes; }
};

// Nothing if `text` is no size from 0 up to 9e18 bytes.
std::optional<ByteSize> parse_byte_size(std::string_view text);

// Makes `option` refuse everything that is no size. Returns `option`.
CLI::Option* expect_byte_size(CLI::Option* option);

}  // namespace penstock
