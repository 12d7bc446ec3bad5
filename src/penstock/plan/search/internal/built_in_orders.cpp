#include "penstock/plan/search/internal/built_in_orders.h"

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"

namespace penstock {

std::vector<BuiltInOrder> make_built_in_orders(const SearchProblem& problem) {
  // LoopedBFS and Interleaved1F1B with one stage per rank are GPipe and 1F1B.
  const bool is_v = problem.placement == SearchPlacement::V;
  const std::vector<std::string_view> names =
      is_v ? std::vector<std::string_view>{"ZBVZeroBubble", "V-Half", "V-Min"}
           : std::vector<std::string_view>{"GPipe", "1F1B", "ZB-H1", "ZB-H2",
                                           "InterleavedZeroBubble"};
  const ScheduleShape shape = {.num_ranks = problem.num_ranks(),
                               .num_microbatches = problem.num_microbatches,
                               .stages_per_rank = is_v ? 2 : 1};
  std::vector<BuiltInOrder> orders;
  for (const std::string_view name : names) {
    try {
      orders.push_back({.name = name, .schedule = make_schedule(name, shape)});
    } catch (const ArgumentError&) {
      continue;  // what does not exist in this shape is no candidate
    }
    BuiltInOrder& built_in = orders.back();
    built_in.order = to_order(problem, built_in.schedule);
    built_in.score = evaluate(problem, built_in.order, &built_in.trace);
    PENSTOCK_ASSERT(built_in.score.is_complete, "built-in schedules run to their end");
  }
  return orders;
}

}  // namespace penstock
