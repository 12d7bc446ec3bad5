#include <cstddef>
#include <cstdint>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/json.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const penstock::Schedule schedule = penstock::read_json(text, "fuzz");
    penstock::require(penstock::read_json(penstock::write_json(schedule), "again") == schedule);
  } catch (const penstock::ParseError& error) {
    penstock::require(error.line() >= 1 && error.column() >= 1);
    penstock::require(std::string_view(error.what()).starts_with("fuzz:"));
  }
  return 0;
}
