#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// How good an order is.
struct Score {
  Duration span = kNever;       // the longest of a single rank
  Duration makespan = kNever;   // the end of the last action of all
  std::int64_t peak_bytes = 0;  // of microbatches, on the rank that has most
  bool is_complete = false;     // false: the order waits for itself
  bool fits = false;            // every rank is within its limit

  Duration by(SearchObjective objective) const {
    return objective == SearchObjective::Span ? span : makespan;
  }
};

// By the objective, then by the other time, then by memory. Of two equals neither is better.
bool is_better(const Score& left, const Score& right, SearchObjective objective);

// What else there is to know about an order.
struct Trace {
  std::vector<std::vector<Duration>> starts;  // [rank][step]
  std::vector<std::int64_t> peak_bytes;       // by rank, without parameters
  Duration work{};                            // of all actions together
};

// Runs `order` as simulate() does: each rank strictly in order, each action as soon as its rank is
// free and its input is there. An order only needs to be lowered for what this leaves out: sends
// that hold their rank up, and the times of UNSHARD and REDUCE_GRAD.
Score evaluate(const SearchProblem& problem, const Order& order, Trace* trace = nullptr);

}  // namespace penstock
