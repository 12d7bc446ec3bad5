#include <cstddef>
#include <cstdint>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/action.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const penstock::Action action = penstock::parse_action(text);
    penstock::require(penstock::parse_action(penstock::to_string(action)) == action);
  } catch (const penstock::ParseError& error) {
    penstock::require(error.line() >= 1 && error.column() >= 1);
    penstock::require(static_cast<std::size_t>(error.column()) <= size + 1);
  }
  return 0;
}
