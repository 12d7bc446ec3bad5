#pragma once

#include <span>
#include <string_view>

#include "penstock/plan/generators/shape.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// A built-in schedule: its name in the literature and the shapes it exists in.
struct ScheduleFamily {
  static constexpr int kAnyNumber = 0;

  std::string_view name;
  std::string_view summary;
  std::string_view alias = {};  // a second name users know it by
  int min_stages_per_rank = 1;
  int max_stages_per_rank = 1;  // kAnyNumber: no limit
  int default_stages_per_rank = 1;
  int num_ranks = kAnyNumber;  // the only number of ranks it is defined for
  Schedule (*make)(const ScheduleShape& shape) = nullptr;
};

std::span<const ScheduleFamily> schedule_families();

// Finds a family by name: case, '-', '_' and a leading "Schedule" do not matter. Throws
// ArgumentError, with the nearest name, if there is none.
const ScheduleFamily& schedule_family(std::string_view name);

Schedule make_schedule(std::string_view name, const ScheduleShape& shape);

// `shape` with the family's own number of stages per rank filled in. Throws ArgumentError when the
// family does not exist in that shape, or when the order would be too long to hold.
ScheduleShape resolve_shape(std::string_view name, const ScheduleShape& shape);

}  // namespace penstock
