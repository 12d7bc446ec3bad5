#include <cstddef>
#include <cstdint>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/plan/simulator/simulate.h"
#include "tests/fuzz/require.h"

// Whatever is read can be simulated, or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const penstock::Schedule program = penstock::lower(
      penstock::make_schedule("DualPipeV", {.num_ranks = 2, .num_microbatches = 4}));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const penstock::Profile profile = penstock::read_profile(text, "fuzz");
    penstock::read_profile(penstock::write_profile(profile), "again");
    if (!profile.costs.stages.empty()) penstock::simulate(program, profile.costs);
  } catch (const penstock::ArgumentError&) {
  } catch (const penstock::Error& error) {
    penstock::require(std::string_view(error.what()).starts_with("fuzz:"));
  }
  return 0;
}
