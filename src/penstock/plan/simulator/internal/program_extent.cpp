#include "penstock/plan/simulator/internal/program_extent.h"

#include <cstdint>

#include "penstock/plan/prover/check.h"

namespace penstock {

Extent require_extent(const Schedule& program) {
  const Extent extent = extent_of(program);
  const auto num_cells = static_cast<std::uint64_t>(extent.num_stages) *
                         static_cast<std::uint64_t>(extent.num_microbatches);
  std::size_t num_entries = 0;
  for (const std::vector<Action>& actions : program.ranks) num_entries += actions.size();
  if (num_cells > num_entries) require_valid(program);
  return extent;
}

}  // namespace penstock
