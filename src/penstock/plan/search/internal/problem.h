#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/search/search.h"
#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// Later than everything, and still far from the largest number.
inline constexpr Duration kNever = Duration::max() / 4;

// How a value gets from a stage to a neighbour: some time on the wire, which carries one message at
// a time, and some more until it arrives. Both are zero within a rank.
struct Hop {
  Duration wire{};
  Duration latency{};

  Duration total() const { return wire + latency; }
};

struct SearchStage {
  int rank = 0;
  int slot = 0;  // its index among the stages of the rank
  Duration forward{};
  Duration input_backward{};
  Duration weight_backward{};
  Duration full_backward{};
  std::int64_t activation_bytes = 0;  // per microbatch, from F to I
  std::int64_t weight_bytes = 0;      // per microbatch, from I to W
  Hop forward_hop = {};               // to the next stage
  Hop backward_hop = {};              // to the stage before
};

struct SearchRank {
  std::vector<int> stages;  // ascending
  Duration work{};          // of all its F, I and W
  std::int64_t parameter_bytes = 0;
  std::int64_t limit_bytes = 0;  // for what microbatches keep: parameters are taken off
};

// A search in one placement, with all that its candidates have in common worked out.
struct SearchProblem {
  SearchPlacement placement = SearchPlacement::Looped;
  SearchObjective objective = SearchObjective::Span;
  int num_microbatches = 0;
  CostModel costs;  // one per stage
  std::vector<SearchStage> stages;
  std::vector<SearchRank> ranks;

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  int num_stages() const { return static_cast<int>(stages.size()); }
  const SearchStage& stage(int index) const { return stages[static_cast<std::size_t>(index)]; }
  const SearchRank& rank(int index) const { return ranks[static_cast<std::size_t>(index)]; }
  bool is_last_stage(int index) const { return index + 1 == num_stages(); }
  Extent extent() const { return {num_stages(), num_microbatches}; }
};

// The problems that `options` describe, one per placement. Throws ArgumentError on counts and costs
// that make no sense. A rank's limit may be too small or negative here.
std::vector<SearchProblem> make_problems(const SearchOptions& options);

}  // namespace penstock
