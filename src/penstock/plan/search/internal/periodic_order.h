#pragma once

#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// How long things take in a pattern. Units of its own: only the order is kept, so these need not be
// the costs of the problem.
struct PatternTimes {
  int forward = 1;
  int input_backward = 1;
  int weight_backward = 1;
  int hop = 0;  // between ranks, either way
  int period = 3;
};

// One microbatch's way through the pipeline, repeated every `period`: each F and I goes to the
// first time at which its rank is free in every repetition, so that a microbatch stays as short as
// the period allows and few are in flight. W's take what is left. Empty if the period is too short.
Order make_periodic_order(const SearchProblem& problem, const PatternTimes& times);

}  // namespace penstock
