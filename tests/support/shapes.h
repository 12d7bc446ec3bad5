#pragma once

#include <string>
#include <vector>

#include "penstock/plan/generators/registry.h"

namespace penstock::testing {

// The largest shape of a grid that starts with one of each.
struct ShapeLimits {
  int num_ranks;
  int stages_per_rank;
  int num_microbatches;
};

// Every shape of the grid in which `family` exists.
std::vector<ScheduleShape> shapes_of(const ScheduleFamily& family, const ShapeLimits& limits);

// How many stages and microbatches a schedule of that shape must have.
Extent extent_of_shape(const ScheduleFamily& family, const ScheduleShape& shape);

// "1F1B, 4 ranks, 1 stage per rank, 8 microbatches"
std::string describe(const ScheduleFamily& family, const ScheduleShape& shape);

// The names of all families, and such a name as the name of a test.
std::vector<std::string> family_names();
std::string test_name(const std::string& family_name);

}  // namespace penstock::testing
