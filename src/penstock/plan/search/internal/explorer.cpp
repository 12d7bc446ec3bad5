#include "penstock/plan/search/internal/explorer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/plan/search/internal/fuse_backwards.h"
#include "penstock/plan/search/internal/periodic_order.h"

namespace penstock {
namespace {

// In the order in which they tend to succeed.
constexpr std::array kFirstOvershoots = {1000, 100, 500, 900};
constexpr std::array kMoreOvershoots = {700, 0, 800, 300, 200, 600, 400};

// F, I and W of a pattern alike; divisible, for the hops.
constexpr int kPatternUnit = 12;

std::string pattern_name(const PatternShape& shape) {
  return fmt::format("periodic pattern, hop {:.1f}, period {:.1f}",
                     static_cast<double>(shape.hop) / kPatternUnit, shape.percent / 100.0);
}

// Forwards before the first backward, by rank.
std::vector<int> warmup_depths_of(const Order& order) {
  std::vector<int> depths;
  for (const std::vector<Step>& steps : order) {
    const auto first_backward = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
      return step.kind != ActionKind::Forward;
    });
    depths.push_back(static_cast<int>(first_backward - steps.begin()));
  }
  return depths;
}

}  // namespace

Explorer::Explorer(const SearchProblem& problem, const TimeBound& bound, std::int64_t effort)
    : problem_(problem),
      bound_(bound.by(problem.objective)),
      effort_(effort),
      scheduler_(problem) {}

Exploration Explorer::explore(std::span<const BuiltInOrder> built_in_orders) {
  offer(make_sequential_order(problem_), "one microbatch at a time");
  for (const BuiltInOrder& built_in : built_in_orders) {
    consider(built_in.order, built_in.score, std::string(built_in.name));
  }
  PENSTOCK_ASSERT(best_.score.fits, "one microbatch at a time fits into every possible limit");
  num_actions_evaluated_ = 0;  // what has to be done is not the effort that can be chosen

  try_policy({});  // where memory is plenty, this is often all it takes
  for (const int hop : {kPatternUnit, kPatternUnit / 2, 0}) {
    if (is_done()) break;
    if (problem_.placement == SearchPlacement::V) offer_pattern({.hop = hop, .percent = 100});
  }
  for (const BuiltInOrder& built_in : built_in_orders) {
    if (is_done()) break;
    if (problem_.placement == SearchPlacement::V) {
      offer_with_moved_weights(built_in.order, std::string(built_in.name));
    }
  }
  try_policies(kFirstOvershoots);
  try_patterns();
  try_policies(kMoreOvershoots);
  improve_policy();
  improve_warmup();
  fuse_best();
  return std::move(best_);
}

// Keeps `order` if it fits and is the best so far.
void Explorer::consider(const Order& order, const Score& score, const std::string& method) {
  ++best_.num_candidates;
  if (!score.is_complete || !score.fits) return;
  if (!is_better(score, best_.score, problem_.objective)) return;
  best_.order = order;
  best_.score = score;
  best_.method = method;
}

// What does not fit gets the worst of scores.
Score Explorer::offer(const Order& order, const std::string& method) {
  for (const std::vector<Step>& steps : order) {
    // Evaluating a step takes about a third of the time of choosing it.
    num_actions_evaluated_ += static_cast<std::int64_t>(steps.size() + 2) / 3;
  }
  const Score score = evaluate(problem_, order);
  consider(order, score, method);
  return score.is_complete && score.fits ? score : Score();
}

// Where the W's go decides memory and idle time; the policies differ in which they care about.
void Explorer::offer_with_moved_weights(const Order& order, const std::string& method) {
  for (const Duration budget : {Policy::kAsWorstRank, kNever}) {
    if (is_done()) return;
    ++best_.num_candidates;
    const Policy policy = {.idle_budget = budget};
    if (scheduler_.run_with_order(policy, best_.score, order)) {
      offer(scheduler_.order(), method + " with moved weight gradients");
    }
  }
}

// True if it is the best of the policies so far.
bool Explorer::try_policy(const Policy& policy) {
  if (is_done()) return false;
  if (!scheduler_.run(policy, best_listed_)) {
    ++best_.num_candidates;
    return false;
  }
  const Score score = offer(scheduler_.order(), to_string(policy));
  if (!is_better(score, best_listed_, problem_.objective)) return false;
  best_listed_ = score;
  best_policy_ = policy;
  return true;
}

void Explorer::try_policies(std::span<const int> warmup_overshoots) {
  const std::int64_t activation = std::max<std::int64_t>(1, problem_.stage(0).activation_bytes);
  const auto num_that_fit = static_cast<int>(
      std::min<std::int64_t>(problem_.num_microbatches, problem_.rank(0).limit_bytes / activation));
  const bool has_choice_of_stages = problem_.placement == SearchPlacement::V;
  for (const int warmup : warmup_overshoots) {
    for (const int max_in_flight : {0, num_that_fit}) {
      for (const Duration budget : {Policy::kAsWorstRank, Duration::zero()}) {
        for (const bool deepest_input_first : {true, false}) {
          for (const bool deepest_forward_first : {true, false}) {
            if (!has_choice_of_stages && !(deepest_input_first && deepest_forward_first)) continue;
            const Policy policy = {.warmup_overshoot = warmup,
                                   .idle_budget = budget,
                                   .max_in_flight = max_in_flight,
                                   .deepest_forward_first = deepest_forward_first,
                                   .deepest_input_first = deepest_input_first};
            if (policy != Policy()) try_policy(policy);  // the default one is the first of all
          }
        }
      }
    }
  }
}

// Patterns are for scarce memory: where list scheduling comes this close, there is none to save.
void Explorer::try_patterns() {
  if (best_time() <= bound_ + bound_ / 100) return;
  for (const int hop : {0, kPatternUnit / 2, kPatternUnit}) {
    for (const int percent : {100, 110, 120, 140, 160}) {
      if (is_done()) return;
      const PatternShape shape = {.hop = hop, .percent = percent};
      const Order order = offer_pattern(shape);
      if (!order.empty()) offer_with_moved_weights(order, pattern_name(shape));
    }
  }
}

Order Explorer::offer_pattern(PatternShape shape) {
  const int num_slots = problem_.placement == SearchPlacement::V ? 2 : 1;
  Order order =
      make_periodic_order(problem_, {.forward = kPatternUnit,
                                     .input_backward = kPatternUnit,
                                     .weight_backward = kPatternUnit,
                                     .hop = shape.hop,
                                     .period = 3 * kPatternUnit * num_slots * shape.percent / 100});
  if (!order.empty()) offer(order, pattern_name(shape));
  return order;
}

// Turns one knob at a time, as long as that helps.
void Explorer::improve_policy() {
  const Duration forward = problem_.stage(0).forward;
  bool has_improved = true;
  while (has_improved && !is_done()) {
    has_improved = false;
    const Policy base = best_policy_;
    const auto try_change = [&](const auto& change) {
      Policy policy = base;
      change(policy);
      has_improved = try_policy(policy) || has_improved;
    };
    for (const int step : {-50, 50}) {
      try_change([&](Policy& policy) { policy.warmup_overshoot += step; });
    }
    for (const int overshoot : {0, 250, 500, 750}) {
      try_change([&](Policy& policy) { policy.steady_overshoot = overshoot; });
    }
    for (const int quarters : {1, 2, 4, 8, 16}) {
      try_change([&](Policy& policy) { policy.idle_budget = quarters * forward / 4; });
    }
    for (const int step : {-2, -1, 1, 2}) {
      if (base.max_in_flight + step < 1) continue;
      try_change([&](Policy& policy) { policy.max_in_flight += step; });
    }
  }
}

// One forward more or less before the first backward, rank by rank.
void Explorer::improve_warmup() {
  const std::string method = best_.method + ", warm-up moved";
  bool has_improved = true;
  while (has_improved && !is_done()) {
    has_improved = false;
    std::vector<int> depths = warmup_depths_of(best_.order);
    for (int& depth : depths) {
      for (const int step : {-1, 1}) {
        if (is_done() || depth + step < 1) continue;
        depth += step;
        ++best_.num_candidates;
        const Duration before = best_time();
        if (scheduler_.run_with_warmup(best_policy_, best_.score, depths)) {
          offer(scheduler_.order(), method);
        }
        if (best_time() < before) {
          has_improved = true;
        } else {
          depth -= step;
        }
      }
    }
  }
}

void Explorer::fuse_best() {
  Order fused = fuse_backwards(problem_, best_.order);
  const Score score = evaluate(problem_, fused);
  // On a shared wire a later message may delay others.
  if (!score.fits || is_better(best_.score, score, problem_.objective)) return;
  best_.order = std::move(fused);
  best_.score = score;
}

}  // namespace penstock
