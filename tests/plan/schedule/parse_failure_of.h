#pragma once

#include <optional>

#include "penstock/base/error.h"

namespace penstock {

// The ParseError that `parse` throws. EXPECT_TRUE(failure) tells when it throws none.
template <typename Parse>
std::optional<ParseError> parse_failure_of(Parse&& parse) {
  try {
    static_cast<void>(parse());
  } catch (const ParseError& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace penstock
