#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// Where the stages may go: one per rank, or two per rank down and up again.
enum class SearchPlacement { Any, Looped, V };
std::string_view search_placement_name(SearchPlacement placement);

// What should be short: the longest span of a single rank, or the time until all ranks are done.
enum class SearchObjective { Span, Makespan };

struct SearchOptions {
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  int num_ranks = 1;
  int num_microbatches = 1;

  // With one stage cost, it is that of a rank's whole share of the model: a stage of a V placement
  // takes half of its time and bytes (of an odd number, the second stage gets the larger half), and
  // sends messages of the same size. With `num_ranks` of them the placement is looped, with twice
  // as many it is a V.
  CostModel costs;
  // What a rank may hold: the parameters of its stages and what microbatches keep there.
  std::int64_t memory_limit_bytes = kNoLimit;
  SearchPlacement placement = SearchPlacement::Any;
  SearchObjective objective = SearchObjective::Span;

  // How many actions the candidates of one placement may have altogether. Not a time, so that the
  // same question has the same answer everywhere; 100000 actions take about 10 ms.
  std::int64_t effort = 100'000;
};

// What simulate() says about a schedule.
struct SearchFigures {
  Duration span{};
  Duration makespan{};
  double span_bubble = 0;
  double makespan_bubble = 0;
  std::vector<std::int64_t> peak_bytes;  // by rank

  friend bool operator==(const SearchFigures&, const SearchFigures&) = default;
};

// No schedule with the placements, costs and limit that were asked for is shorter than this.
struct SearchBound {
  Duration span{};
  Duration makespan{};
  double span_bubble = 0;
  double makespan_bubble = 0;
};

struct BuiltInFigures {
  std::string name;
  SearchFigures figures;
};

struct SearchResult {
  Schedule schedule;  // a compute order of F, I, W and B
  SearchPlacement placement = SearchPlacement::Looped;
  CostModel costs;     // one for each stage of `schedule`
  std::string method;  // how the order was found; a built-in schedule goes by its name
  SearchFigures figures;
  SearchBound bound;
  std::optional<BuiltInFigures> best_built_in;  // that fits
  std::int64_t num_candidates = 0;
};

// A compute order for given costs within a memory limit: where the weight gradients go, how many
// forwards run ahead, which placement. A heuristic, but never worse by `objective` than the best of
// GPipe, 1F1B, ZB-H1, ZB-H2, InterleavedZeroBubble (one stage per rank), ZBVZeroBubble, V-Half and
// V-Min that fits into the limit and the placement. Same options, same result.
//
// `figures` are those of simulate(lower(schedule), costs). Throws ArgumentError on counts and costs
// that make no sense, and on a limit under which there is no schedule: the message has the smallest
// limit that works.
SearchResult search(const SearchOptions& options);

// The smallest memory limit for which search() finds a schedule; its own limit does not matter.
std::int64_t smallest_memory_limit(const SearchOptions& options);

}  // namespace penstock
