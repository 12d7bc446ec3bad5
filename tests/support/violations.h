#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/prover/check.h"

namespace penstock::testing {

// The messages of everything check() finds wrong with a schedule; none if it is valid.
std::vector<std::string> violations_of(const Schedule& schedule, const CheckOptions& options = {});

// The same for the schedule of a parse_listing().
std::vector<std::string> violations_of(std::string_view listing, const CheckOptions& options = {});

}  // namespace penstock::testing
