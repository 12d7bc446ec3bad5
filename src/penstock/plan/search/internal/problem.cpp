#include "penstock/plan/search/internal/problem.h"

#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"

namespace penstock {
namespace {

// Sums of times, and a thousand times such a sum, must fit into 64 bits.
constexpr double kLongestNanoseconds = 1e15;
constexpr double kMostBytes = 4e18;

int stages_per_rank(SearchPlacement placement) {
  return placement == SearchPlacement::V ? 2 : 1;
}

// The two stages into which a V placement divides the share of a rank.
std::pair<StageCost, StageCost> halves_of(const StageCost& whole) {
  StageCost lower = whole;  // messages keep their size
  StageCost upper = whole;
  const auto divide = [&](auto member) {
    lower.*member = whole.*member / 2;
    upper.*member = whole.*member - lower.*member;
  };
  divide(&StageCost::forward);
  divide(&StageCost::input_backward);
  divide(&StageCost::weight_backward);
  divide(&StageCost::full_backward);
  divide(&StageCost::unshard);
  divide(&StageCost::reduce_grad);
  divide(&StageCost::activation_bytes);
  divide(&StageCost::weight_gradient_bytes);
  divide(&StageCost::parameter_bytes);
  // Rounded parts must not make a B that was I + W a nanosecond longer or shorter.
  if (whole.full_backward == whole.input_backward + whole.weight_backward) {
    for (StageCost* half : {&lower, &upper}) {
      half->full_backward = half->input_backward + half->weight_backward;
    }
  }
  return {lower, upper};
}

CostModel costs_by_stage(const CostModel& costs, int num_ranks, SearchPlacement placement) {
  CostModel result = costs;
  if (costs.stages.size() != 1) return result;
  const auto count = static_cast<std::size_t>(num_ranks);
  if (placement == SearchPlacement::Looped) {
    result.stages.assign(count, costs.stages.front());
  } else {
    const auto [lower, upper] = halves_of(costs.stages.front());
    result.stages.assign(count, lower);
    result.stages.insert(result.stages.end(), count, upper);
  }
  return result;
}

std::vector<SearchPlacement> placements_of(const SearchOptions& options) {
  const auto num_given = static_cast<int>(options.costs.stages.size());
  const bool is_share = num_given == 1;
  std::vector<SearchPlacement> placements;
  for (const SearchPlacement placement : {SearchPlacement::Looped, SearchPlacement::V}) {
    const bool is_wanted =
        options.placement == SearchPlacement::Any || options.placement == placement;
    const bool is_given = is_share || num_given == options.num_ranks * stages_per_rank(placement);
    if (is_wanted && is_given) placements.push_back(placement);
  }
  if (!placements.empty()) return placements;
  const int num_looped = options.num_ranks;
  const std::string expected =
      options.placement == SearchPlacement::Any
          ? fmt::format("{} (looped placement) or {} (V placement)", num_looped, 2 * num_looped)
          : fmt::format("{} ({} placement)", num_looped * stages_per_rank(options.placement),
                        search_placement_name(options.placement));
  throw ArgumentError(
      fmt::format("the costs are for {} stages; {} ranks need {}, or one cost that stands for the "
                  "share of every rank",
                  num_given, options.num_ranks, expected));
}

void require_shape(const SearchOptions& options, SearchPlacement placement) {
  const char* const family = placement == SearchPlacement::V ? "V-Half" : "1F1B";
  resolve_shape(family, {options.num_ranks, options.num_microbatches, stages_per_rank(placement)});
}

// One microbatch after the other is the slowest schedule; its length bounds every number here.
void require_summable(const CostModel& costs, int num_microbatches) {
  double time = 0;
  double bytes = 0;
  const auto add_time = [&](Duration part) { time += static_cast<double>(part.count()); };
  for (const StageCost& cost : costs.stages) {
    for (const Duration part : {cost.forward, cost.input_backward, cost.weight_backward,
                                cost.full_backward, cost.unshard, cost.reduce_grad}) {
      add_time(part);
    }
    for (const std::int64_t message : {cost.output_bytes, cost.input_gradient_bytes}) {
      add_time(costs.hop_latency);
      if (costs.bytes_per_second > 0) {
        time += static_cast<double>(message) / costs.bytes_per_second * 1e9;
      }
    }
    for (const std::int64_t part :
         {cost.activation_bytes, cost.weight_gradient_bytes, cost.parameter_bytes}) {
      bytes += static_cast<double>(part);
    }
  }
  if (time * num_microbatches > kLongestNanoseconds || bytes * num_microbatches > kMostBytes) {
    throw ArgumentError(
        fmt::format("the costs are too large: one microbatch after the other would take {:.3g} s "
                    "of at most {:.3g} s and {:.3g} bytes of at most {:.3g}",
                    time * num_microbatches / 1e9, kLongestNanoseconds / 1e9,
                    bytes * num_microbatches, kMostBytes));
  }
}

Hop hop_between(const CostModel& costs, const Action& send, int from_rank, int to_rank) {
  if (from_rank == to_rank) return {};
  return {.wire = costs.wire_time(send), .latency = costs.hop_latency};
}

SearchProblem make_problem(const SearchOptions& options, SearchPlacement placement) {
  require_shape(options, placement);
  SearchProblem problem;
  problem.placement = placement;
  problem.objective = options.objective;
  problem.num_microbatches = options.num_microbatches;
  problem.costs = costs_by_stage(options.costs, options.num_ranks, placement);
  const int num_stages = options.num_ranks * stages_per_rank(placement);
  require_summable(problem.costs, options.num_microbatches);

  const Placement ranks_of = placement == SearchPlacement::V
                                 ? v_placement(options.num_ranks, num_stages)
                                 : looped_placement(options.num_ranks, num_stages);
  problem.ranks.resize(static_cast<std::size_t>(options.num_ranks));
  for (int stage = 0; stage < num_stages; ++stage) {
    const StageCost& cost = problem.costs.stage(stage);
    SearchStage entry = {.rank = ranks_of.rank_of(stage),
                         .forward = cost.forward,
                         .input_backward = cost.input_backward,
                         .weight_backward = cost.weight_backward,
                         .full_backward = cost.full_backward,
                         .activation_bytes = cost.activation_bytes,
                         .weight_bytes = cost.weight_gradient_bytes};
    if (stage + 1 < num_stages) {
      const Action send = {.stage = stage, .kind = ActionKind::SendForward, .microbatch = 0};
      entry.forward_hop = hop_between(problem.costs, send, entry.rank, ranks_of.rank_of(stage + 1));
    }
    if (stage > 0) {
      const Action send = {.stage = stage, .kind = ActionKind::SendBackward, .microbatch = 0};
      entry.backward_hop =
          hop_between(problem.costs, send, entry.rank, ranks_of.rank_of(stage - 1));
    }
    SearchRank& rank = problem.ranks[static_cast<std::size_t>(entry.rank)];
    entry.slot = static_cast<int>(rank.stages.size());
    rank.stages.push_back(stage);
    rank.work +=
        options.num_microbatches * (entry.forward + entry.input_backward + entry.weight_backward);
    rank.parameter_bytes += cost.parameter_bytes;
    problem.stages.push_back(entry);
  }
  for (SearchRank& rank : problem.ranks) {
    rank.limit_bytes = options.memory_limit_bytes - rank.parameter_bytes;
  }
  return problem;
}

}  // namespace

std::vector<SearchProblem> make_problems(const SearchOptions& options) {
  if (options.costs.stages.empty()) throw ArgumentError("the costs have no stage");
  if (options.memory_limit_bytes < 0) {
    throw ArgumentError(fmt::format("the memory limit is {} bytes; it cannot be negative",
                                    options.memory_limit_bytes));
  }
  if (options.effort < 0) {
    throw ArgumentError(fmt::format("the effort is {}; it cannot be negative", options.effort));
  }
  require_shape(options, SearchPlacement::Looped);
  constexpr double kEachAlone = 1;  // sums are those of a placement, and looked at there
  require_costs(options.costs, static_cast<int>(options.costs.stages.size()), kEachAlone);
  std::vector<SearchProblem> problems;
  for (const SearchPlacement placement : placements_of(options)) {
    problems.push_back(make_problem(options, placement));
  }
  return problems;
}

}  // namespace penstock
