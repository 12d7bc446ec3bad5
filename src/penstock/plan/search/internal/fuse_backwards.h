#pragma once

#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// Makes a B of every I that its own W follows, where this delays nothing: the gradient of a B
// leaves at its end, so the stage before must not have needed it earlier. A B saves running through
// the stage a second time, which the costs may or may not show.
Order fuse_backwards(const SearchProblem& problem, const Order& order);

}  // namespace penstock
