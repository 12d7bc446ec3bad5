#include "tests/support/shapes.h"

#include <algorithm>

#include "penstock/base/text.h"

namespace penstock::testing {

std::vector<ScheduleShape> shapes_of(const ScheduleFamily& family, const ShapeLimits& limits) {
  constexpr int kAny = ScheduleFamily::kAnyNumber;
  const int most_stages = family.max_stages_per_rank == kAny
                              ? limits.stages_per_rank
                              : std::min(limits.stages_per_rank, family.max_stages_per_rank);
  std::vector<ScheduleShape> shapes;
  for (int num_ranks = 1; num_ranks <= limits.num_ranks; ++num_ranks) {
    if (family.num_ranks != kAny && family.num_ranks != num_ranks) continue;
    for (int stages = family.min_stages_per_rank; stages <= most_stages; ++stages) {
      for (int microbatches = 1; microbatches <= limits.num_microbatches; ++microbatches) {
        shapes.push_back(
            {.num_ranks = num_ranks, .num_microbatches = microbatches, .stages_per_rank = stages});
      }
    }
  }
  return shapes;
}

Extent extent_of_shape(const ScheduleFamily& family, const ScheduleShape& shape) {
  constexpr int kUnbalancedStages = 5;
  const int num_stages = family.name == "Unbalanced" ? kUnbalancedStages : shape.num_stages();
  return {.num_stages = num_stages, .num_microbatches = shape.num_microbatches};
}

std::string describe(const ScheduleFamily& family, const ScheduleShape& shape) {
  return std::string(family.name) + ", " + counted(shape.num_ranks, "rank", "ranks") + ", " +
         counted(shape.stages_per_rank, "stage", "stages") + " per rank, " +
         counted(shape.num_microbatches, "microbatch", "microbatches");
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const ScheduleFamily& family : schedule_families()) names.emplace_back(family.name);
  return names;
}

std::string test_name(const std::string& family_name) {
  std::string name = family_name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace penstock::testing
