#include "penstock/plan/search/search.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/search/internal/bounds.h"
#include "penstock/plan/search/internal/built_in_orders.h"
#include "penstock/plan/search/internal/explorer.h"
#include "penstock/plan/search/internal/problem.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {
namespace {

std::int64_t smallest_limit(const SearchProblem& problem) {
  std::int64_t limit = 0;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    limit =
        std::max(limit, problem.rank(rank).parameter_bytes + smallest_peak_bytes(problem, rank));
  }
  return limit;
}

// Whether evaluate() covers all there is to these costs.
bool are_covered(const CostModel& costs) {
  const auto is_free = [](const StageCost& cost) {
    return cost.unshard == Duration::zero() && cost.reduce_grad == Duration::zero();
  };
  return costs.sends == SendMode::Buffered &&
         std::all_of(costs.stages.begin(), costs.stages.end(), is_free);
}

double bubble_of(Duration work, int num_ranks, Duration time) {
  if (time <= Duration::zero()) return 0;
  return std::max(
      0.0, 1 - static_cast<double>(work.count()) / num_ranks / static_cast<double>(time.count()));
}

SearchFigures figures_of(const Timeline& timeline) {
  SearchFigures figures = {.span = timeline.longest_span,
                           .makespan = timeline.makespan,
                           .span_bubble = timeline.span_bubble,
                           .makespan_bubble = timeline.makespan_bubble,
                           .peak_bytes = {}};
  for (const RankUsage& rank : timeline.ranks) figures.peak_bytes.push_back(rank.peak_bytes);
  return figures;
}

Timeline simulate_order(const CostModel& costs, const Schedule& schedule) {
  return simulate(lower(schedule, {.sharding = !are_covered(costs)}), costs);
}

SearchFigures evaluated_figures(const SearchProblem& problem, const Score& score,
                                const Trace& trace) {
  SearchFigures figures = {
      .span = score.span,
      .makespan = score.makespan,
      .span_bubble = bubble_of(trace.work, problem.num_ranks(), score.span),
      .makespan_bubble = bubble_of(trace.work, problem.num_ranks(), score.makespan),
      .peak_bytes = trace.peak_bytes};
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    figures.peak_bytes[static_cast<std::size_t>(rank)] += problem.rank(rank).parameter_bytes;
  }
  return figures;
}

Duration time_by(SearchObjective objective, const SearchFigures& figures) {
  return objective == SearchObjective::Span ? figures.span : figures.makespan;
}

// By the objective, then by the other time, as is_better() of orders.
bool is_shorter(const SearchFigures& left, const SearchFigures& right, SearchObjective objective) {
  const auto key = [objective](const SearchFigures& figures) {
    return std::pair(time_by(objective, figures), figures.span + figures.makespan);
  };
  return key(left) < key(right);
}

// One placement to search.
struct Task {
  SearchProblem problem;
  TimeBound bound;
};

SearchResult search_placement(const Task& task, std::int64_t effort) {
  const SearchProblem& problem = task.problem;
  const std::vector<BuiltInOrder> built_in_orders = make_built_in_orders(problem);
  Exploration found = Explorer(problem, task.bound, effort).explore(built_in_orders);

  // Lowering takes longer than the search: only costs that the search does not see ask for it.
  const bool is_covered = are_covered(problem.costs);
  const auto figures_in = [&](const Schedule& schedule, const Score& score, const Trace& trace) {
    return is_covered ? evaluated_figures(problem, score, trace)
                      : figures_of(simulate_order(problem.costs, schedule));
  };
  Trace trace;
  const Score score = evaluate(problem, found.order, &trace);
  SearchResult result;
  result.placement = problem.placement;
  result.costs = problem.costs;
  result.method = std::move(found.method);
  result.schedule = to_schedule(problem, found.order);
  result.num_candidates = found.num_candidates;
  result.figures = figures_in(result.schedule, score, trace);
  for (const BuiltInOrder& built_in : built_in_orders) {
    if (!built_in.score.fits) continue;
    SearchFigures figures = figures_in(built_in.schedule, built_in.score, built_in.trace);
    // Costs that the search does not see may put a built-in schedule ahead after all.
    if (is_shorter(figures, result.figures, problem.objective)) {
      result.schedule = compute_actions(built_in.schedule);
      result.method = built_in.name;
      result.figures = figures;
    }
    const bool is_best = !result.best_built_in ||
                         is_shorter(figures, result.best_built_in->figures, problem.objective);
    if (is_best) result.best_built_in = {std::string(built_in.name), std::move(figures)};
  }
  return result;
}

std::int64_t smallest_limit(const std::vector<SearchProblem>& problems) {
  std::int64_t smallest = SearchOptions::kNoLimit;
  for (const SearchProblem& problem : problems) {
    smallest = std::min(smallest, smallest_limit(problem));
  }
  return smallest;
}

// The problems whose limit can be kept.
std::vector<SearchProblem> make_possible_problems(const SearchOptions& options) {
  std::vector<SearchProblem> problems = make_problems(options);
  const std::int64_t smallest = smallest_limit(problems);
  std::erase_if(problems, [&](const SearchProblem& problem) {
    return options.memory_limit_bytes < smallest_limit(problem);
  });
  if (!problems.empty()) return problems;
  throw ArgumentError(fmt::format(
      "no schedule fits into {} per rank; the smallest limit that works is {}",
      counted(options.memory_limit_bytes, "byte", "bytes"), counted(smallest, "byte", "bytes")));
}

// The bound that holds for every placement.
TimeBound common_bound(const std::vector<Task>& tasks) {
  TimeBound common = tasks.front().bound;
  for (const Task& task : tasks) {
    common.span = std::min(common.span, task.bound.span);
    common.makespan = std::min(common.makespan, task.bound.makespan);
  }
  return common;
}

// The better of two results, each with the better of the two built-in schedules.
SearchResult better_of(SearchResult left, SearchResult right, SearchObjective objective) {
  const bool right_wins = is_shorter(right.figures, left.figures, objective);
  const bool right_has_built_in =
      right.best_built_in &&
      (!left.best_built_in ||
       is_shorter(right.best_built_in->figures, left.best_built_in->figures, objective));
  std::optional<BuiltInFigures> built_in =
      right_has_built_in ? right.best_built_in : left.best_built_in;
  const std::int64_t num_candidates = left.num_candidates + right.num_candidates;
  SearchResult better = right_wins ? std::move(right) : std::move(left);
  better.best_built_in = std::move(built_in);
  better.num_candidates = num_candidates;
  return better;
}

}  // namespace

std::string_view search_placement_name(SearchPlacement placement) {
  switch (placement) {
    case SearchPlacement::Any:
      return "any";
    case SearchPlacement::Looped:
      return "looped";
    case SearchPlacement::V:
      return "V";
  }
  return "";
}

std::int64_t smallest_memory_limit(const SearchOptions& options) {
  return smallest_limit(make_problems(options));
}

SearchResult search(const SearchOptions& options) {
  std::vector<Task> tasks;
  std::vector<SearchProblem> problems = make_possible_problems(options);
  for (SearchProblem& problem : problems) {
    const TimeBound bound = lower_bound(problem);
    tasks.push_back({std::move(problem), bound});
  }
  const TimeBound bound = common_bound(tasks);
  // The placement that promises most first: what is as short as can be needs no competition but
  // that of the built-in schedules.
  std::stable_sort(tasks.begin(), tasks.end(), [&](const Task& left, const Task& right) {
    return left.bound.by(options.objective) < right.bound.by(options.objective);
  });
  std::optional<SearchResult> found;
  for (const Task& task : tasks) {
    const bool is_optimal =
        found && time_by(options.objective, found->figures) <= bound.by(options.objective);
    SearchResult result = search_placement(task, is_optimal ? 0 : options.effort);
    found = found ? better_of(std::move(*found), std::move(result), options.objective)
                  : std::move(result);
  }
  SearchResult best = std::move(*found);

  // The last word is that of the prover, which lower() asks, and of the simulator.
  const Timeline timeline = simulate_order(best.costs, best.schedule);
  PENSTOCK_ASSERT(figures_of(timeline) == best.figures, "the search sees what simulate() sees");
  Duration work{};
  for (const RankUsage& rank : timeline.ranks) work += rank.busy;
  best.bound = {.span = bound.span,
                .makespan = bound.makespan,
                .span_bubble = bubble_of(work, options.num_ranks, bound.span),
                .makespan_bubble = bubble_of(work, options.num_ranks, bound.makespan)};
  return best;
}

}  // namespace penstock
