#pragma once

#include <optional>
#include <string>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// The schedule as text for people: one row per step, one column per rank.
//
// The row of `error_step`, if given, ends in " <-- ERROR HERE".
std::string write_table(const Schedule& schedule, std::optional<int> error_step = std::nullopt);

}  // namespace penstock
