#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// A schedule of the registry, in one of its shapes.
struct NamedShape {
  std::string schedule;
  int num_ranks;
  int stages_per_rank;
  int num_microbatches;

  friend void PrintTo(const NamedShape& shape, std::ostream* out) {
    *out << shape.schedule << " p=" << shape.num_ranks << " v=" << shape.stages_per_rank
         << " m=" << shape.num_microbatches;
  }
};

// Every schedule that trains, in shapes that are small but not alike.
std::vector<NamedShape> training_shapes();

Schedule make_schedule(const NamedShape& shape);

// Of two ranks, by name: an order from CSV, a program that is lowered already, and one whose
// overlaps are split.
std::vector<std::pair<std::string, Schedule>> custom_schedules();

}  // namespace penstock
