#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/plan/schedule/table.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const penstock::Schedule schedule = penstock::read_csv(text, "fuzz");
    using penstock::LineEnd;
    for (const LineEnd line_end : {LineEnd::Lf, LineEnd::CrLf}) {
      const std::string written = penstock::write_csv(schedule, line_end);
      penstock::require(penstock::read_csv(written, "again") == schedule);
    }
    penstock::require(!penstock::write_table(schedule).empty());
  } catch (const penstock::ParseError& error) {
    penstock::require(error.line() >= 1 && error.column() >= 1);
    penstock::require(std::string_view(error.what()).starts_with("fuzz:"));
  }
  return 0;
}
