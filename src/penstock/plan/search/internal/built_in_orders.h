#pragma once

#include <string_view>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/search/internal/evaluate.h"
#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

struct BuiltInOrder {
  std::string_view name;
  Schedule schedule = {};
  Order order = {};
  Score score = {};
  Trace trace = {};
};

// The built-in schedules that a result must not be worse than: those that train, in the placement
// of `problem`, without containers.
std::vector<BuiltInOrder> make_built_in_orders(const SearchProblem& problem);

}  // namespace penstock
