#pragma once

#include <cstdint>

#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// What `rank` must have free besides the activation of a forward in `slot`, so that this microbatch
// can still get through: the rank's deeper stages run before this stage's I, and an I may leave
// more behind than it frees.
std::int64_t reserve_bytes(const SearchProblem& problem, int rank, int slot);

// What the microbatches on `rank` take at least, under any schedule. Every single microbatch
// passes through all stages of the rank, so less is never enough; one microbatch after the other
// needs no more.
std::int64_t smallest_peak_bytes(const SearchProblem& problem, int rank);

struct TimeBound {
  Duration span{};
  Duration makespan{};

  Duration by(SearchObjective objective) const {
    return objective == SearchObjective::Span ? span : makespan;
  }
};

// No order within the limits is shorter. bounds.cpp has the proofs.
TimeBound lower_bound(const SearchProblem& problem);

}  // namespace penstock
