#pragma once

#include <string>
#include <string_view>

#include "penstock/plan/schedule/schedule.h"

namespace penstock::testing {

// The form in which papers and people write schedules: one line per rank, actions separated by
// blanks, an idle slot as a dot.
//
//   0: 0F0 0F1 . 0B0 . 0B1
//   1: . 1F0 1B0 1F1 1B1 .
//
// The ranks must be in order. Throws std::invalid_argument otherwise.
Schedule parse_listing(std::string_view text);

// The inverse of parse_listing().
std::string write_listing(const Schedule& schedule);

// One line of write_listing(), without the number of the rank.
std::string write_row(const Schedule& schedule, int rank);

}  // namespace penstock::testing
