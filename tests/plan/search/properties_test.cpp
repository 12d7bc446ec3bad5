// What holds for every search, on random costs, shapes and limits.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/search/search.h"
#include "penstock/plan/simulator/simulate.h"
#include "tests/plan/search/search_problems.h"

namespace penstock::testing {
namespace {

int number(int smallest, int largest) {
  return *rc::gen::inRange(smallest, largest + 1);
}

StageCost random_cost() {
  StageCost cost = stage_cost({.forward = number(0, 100),
                               .input_backward = number(0, 100),
                               .weight_backward = number(0, 100),
                               .activation_bytes = number(0, 100),
                               .weight_gradient_bytes = number(0, 150)});
  cost.parameter_bytes = number(0, 50);
  if (number(0, 3) == 0) cost.full_backward = Duration(number(0, 200));
  cost.output_bytes = number(0, 60);
  cost.input_gradient_bytes = number(0, 60);
  return cost;
}

SearchOptions random_options() {
  SearchOptions options;
  options.num_ranks = number(1, 7);
  options.num_microbatches = number(1, 14);
  options.objective = number(0, 1) == 0 ? SearchObjective::Span : SearchObjective::Makespan;
  options.placement = number(0, 1) == 0 ? SearchPlacement::Looped : SearchPlacement::V;
  const int stages_per_rank = options.placement == SearchPlacement::V ? 2 : 1;
  const int num_costs = number(0, 1) == 0 ? 1 : options.num_ranks * stages_per_rank;
  for (int stage = 0; stage < num_costs; ++stage) options.costs.stages.push_back(random_cost());
  options.costs.hop_latency = Duration(number(0, 50));
  options.costs.bytes_per_second = number(0, 2) == 0 ? 1e9 : 0;
  options.effort = 3000;
  const std::int64_t smallest = smallest_memory_limit(options);
  options.memory_limit_bytes = smallest + smallest * number(0, 20) / 2;
  return options;
}

Duration time_of(const SearchOptions& options, const Timeline& timeline) {
  return options.objective == SearchObjective::Span ? timeline.longest_span : timeline.makespan;
}

std::int64_t worst_peak(const Timeline& timeline) {
  std::int64_t worst = 0;
  for (const RankUsage& rank : timeline.ranks) worst = std::max(worst, rank.peak_bytes);
  return worst;
}

RC_GTEST_PROP(SearchProperties, ResultsAreCompleteWithinTheLimitAndAboveTheBound, ()) {
  const SearchOptions options = random_options();
  const SearchResult result = search(options);
  const Extent extent = {static_cast<int>(result.costs.stages.size()), options.num_microbatches};
  const Schedule program = lower(result.schedule);
  RC_ASSERT(check(result.schedule, {.extent = extent}).is_valid());
  RC_ASSERT(check(program, {.extent = extent}).is_valid());
  const Timeline timeline = simulate(program, result.costs);
  RC_ASSERT(timeline.longest_span == result.figures.span);
  RC_ASSERT(timeline.makespan == result.figures.makespan);
  RC_ASSERT(timeline.span_bubble == result.figures.span_bubble);
  RC_ASSERT(worst_peak(timeline) <= options.memory_limit_bytes);
  RC_ASSERT(result.figures.span >= result.bound.span);
  RC_ASSERT(result.figures.makespan >= result.bound.makespan);
}

RC_GTEST_PROP(SearchProperties, NoBuiltInScheduleThatFitsIsBetter, ()) {
  const SearchOptions options = random_options();
  const SearchResult result = search(options);
  const Duration found =
      options.objective == SearchObjective::Span ? result.figures.span : result.figures.makespan;
  const bool is_v = options.placement == SearchPlacement::V;
  const std::vector<const char*> names =
      is_v ? std::vector{"ZBVZeroBubble", "V-Half", "V-Min"}
           : std::vector{"GPipe", "1F1B", "ZB-H1", "ZB-H2", "InterleavedZeroBubble"};
  for (const char* name : names) {
    const Schedule schedule =
        make_schedule(name, {options.num_ranks, options.num_microbatches, is_v ? 2 : 1});
    const Timeline timeline = simulate(lower(schedule), result.costs);
    if (worst_peak(timeline) > options.memory_limit_bytes) continue;
    RC_ASSERT(result.best_built_in);
    RC_ASSERT(found <= time_of(options, timeline));
  }
}

RC_GTEST_PROP(SearchProperties, OneByteLessThanTheSmallestLimitIsRefused, ()) {
  SearchOptions options = random_options();
  options.memory_limit_bytes = smallest_memory_limit(options) - 1;
  RC_PRE(options.memory_limit_bytes >= 0);
  RC_ASSERT_THROWS_AS(search(options), ArgumentError);
}

}  // namespace
}  // namespace penstock::testing
