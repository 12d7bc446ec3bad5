// On small problems all orders can be tried: the bounds must not exceed the optimum, and the search
// must not beat it.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/plan/search/internal/bounds.h"
#include "penstock/plan/search/internal/evaluate.h"
#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"
#include "penstock/plan/search/search.h"
#include "tests/plan/search/search_problems.h"

namespace penstock::testing {
namespace {

// All orders of one rank that respect the dependencies within it and fit into its memory.
class RankOrders {
 public:
  RankOrders(const SearchProblem& problem, int rank)
      : problem_(problem),
        stages_(problem.rank(rank).stages),
        limit_bytes_(problem.rank(rank).limit_bytes),
        counts_(stages_.size()) {
    extend(0);
  }

  const std::vector<std::vector<Step>>& all() const { return all_; }

 private:
  void extend(std::int64_t held_bytes) {
    const std::size_t num_steps =
        3 * stages_.size() * static_cast<std::size_t>(problem_.num_microbatches);
    if (steps_.size() == num_steps) {
      all_.push_back(steps_);
      return;
    }
    for (std::size_t slot = 0; slot < stages_.size(); ++slot) {
      for (const ActionKind kind :
           {ActionKind::Forward, ActionKind::InputBackward, ActionKind::WeightBackward}) {
        if (!is_possible(slot, kind)) continue;
        const std::int64_t held_after = held_bytes + change(slot, kind);
        if (held_after > limit_bytes_) continue;
        const StageCounts before = counts_[slot];
        counts_[slot].add(kind);
        steps_.push_back({static_cast<std::uint8_t>(slot), kind});
        extend(held_after);
        steps_.pop_back();
        counts_[slot] = before;
      }
    }
  }

  bool is_possible(std::size_t slot, ActionKind kind) const {
    const StageCounts& counts = counts_[slot];
    if (counts.next(kind) == problem_.num_microbatches) return false;
    if (kind == ActionKind::Forward) {
      return slot == 0 || counts_[slot - 1].forwards > counts.forwards;
    }
    if (kind == ActionKind::WeightBackward) return counts.inputs > counts.weights;
    const bool is_deepest = slot + 1 == stages_.size();
    return counts.forwards > counts.inputs &&
           (is_deepest || counts_[slot + 1].inputs > counts.inputs);
  }

  std::int64_t change(std::size_t slot, ActionKind kind) const {
    const SearchStage& stage = problem_.stage(stages_[slot]);
    if (kind == ActionKind::Forward) return stage.activation_bytes;
    if (kind == ActionKind::WeightBackward) return -stage.weight_bytes;
    return stage.weight_bytes - stage.activation_bytes;
  }

  const SearchProblem& problem_;
  const std::vector<int>& stages_;
  std::int64_t limit_bytes_;
  std::vector<StageCounts> counts_;
  std::vector<Step> steps_;
  std::vector<std::vector<Step>> all_;
};

// The best span and the best makespan of all orders; kNever if there are too many to try.
TimeBound optimum(const SearchProblem& problem) {
  constexpr std::size_t kMostOrders = 100'000;
  TimeBound best = {.span = kNever, .makespan = kNever};
  std::vector<std::vector<std::vector<Step>>> choices;
  std::size_t num_orders = 1;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    choices.push_back(RankOrders(problem, rank).all());
    num_orders *= choices.back().size();
    if (num_orders > kMostOrders) return best;
  }
  for (std::size_t number = 0; number < num_orders; ++number) {
    Order order;
    std::size_t rest = number;
    for (const auto& rank_choices : choices) {
      order.push_back(rank_choices[rest % rank_choices.size()]);
      rest /= rank_choices.size();
    }
    const Score score = evaluate(problem, order);
    best.span = std::min(best.span, score.span);
    best.makespan = std::min(best.makespan, score.makespan);
  }
  return best;
}

struct SmallShape {
  int num_ranks;
  int num_microbatches;
  SearchPlacement placement;
};

TEST(Exhaustive, BoundsHoldAndTheSearchComesClose) {
  std::mt19937 random(20240110);  // NOLINT(bugprone-random-generator-seed): the same every time
  const auto number = [&](int smallest, int largest) {
    return smallest + static_cast<int>(random() % static_cast<unsigned>(largest - smallest + 1));
  };
  int num_tried = 0;
  int num_optimal = 0;
  double gaps = 0;
  for (const SmallShape& shape :
       {SmallShape{2, 3, SearchPlacement::Looped}, SmallShape{3, 2, SearchPlacement::Looped},
        SmallShape{3, 3, SearchPlacement::Looped}, SmallShape{2, 2, SearchPlacement::V}}) {
    for (int repeat = 0; repeat < 60; ++repeat) {
      SearchOptions options;
      options.num_ranks = shape.num_ranks;
      options.num_microbatches = shape.num_microbatches;
      options.placement = shape.placement;
      options.objective = repeat % 2 == 0 ? SearchObjective::Span : SearchObjective::Makespan;
      options.costs.hop_latency = Duration(number(0, 3));
      const int num_stages = shape.num_ranks * (shape.placement == SearchPlacement::V ? 2 : 1);
      for (int stage = 0; stage < num_stages; ++stage) {
        options.costs.stages.push_back(stage_cost({.forward = number(1, 9),
                                                   .input_backward = number(1, 9),
                                                   .weight_backward = number(0, 9),
                                                   .activation_bytes = number(1, 6),
                                                   .weight_gradient_bytes = number(0, 8)}));
      }
      if (repeat % 3 == 0) {
        std::fill(options.costs.stages.begin(), options.costs.stages.end(),
                  options.costs.stages.front());
      }
      const std::int64_t smallest = smallest_memory_limit(options);
      options.memory_limit_bytes = smallest + number(0, static_cast<int>(2 * smallest));

      const SearchProblem problem = make_problems(options).front();
      const TimeBound best = optimum(problem);
      if (best.span == kNever) continue;
      const TimeBound bound = lower_bound(problem);
      EXPECT_LE(bound.span, best.span);
      EXPECT_LE(bound.makespan, best.makespan);

      const SearchResult result = search(options);
      EXPECT_GE(result.figures.span, best.span);
      EXPECT_GE(result.figures.makespan, best.makespan);
      const Duration found = options.objective == SearchObjective::Span ? result.figures.span
                                                                        : result.figures.makespan;
      ++num_tried;
      if (found == best.by(options.objective)) ++num_optimal;
      gaps += static_cast<double>(found.count()) /
                  static_cast<double>(best.by(options.objective).count()) -
              1;
    }
  }
  EXPECT_GE(num_tried, 150);
  EXPECT_GE(2 * num_optimal, num_tried) << "of " << num_tried << " only " << num_optimal;
  EXPECT_LE(gaps / num_tried, 0.05);
}

}  // namespace
}  // namespace penstock::testing
