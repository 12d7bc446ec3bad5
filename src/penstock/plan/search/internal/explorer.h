#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/plan/search/internal/bounds.h"
#include "penstock/plan/search/internal/built_in_orders.h"
#include "penstock/plan/search/internal/evaluate.h"
#include "penstock/plan/search/internal/list_scheduler.h"
#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// The best order of one placement.
struct Exploration {
  Order order;
  Score score;
  std::string method;
  std::int64_t num_candidates = 0;
};

// Which periodic pattern: the hop between ranks, and the period in percent of a rank's work.
struct PatternShape {
  int hop = 0;
  int percent = 100;
};

// Makes candidates for one problem, whose limit must be possible, and keeps the best that fits.
// From sure to hopeful: one microbatch at a time, the built-in schedules, list scheduling with a
// few policies, periodic patterns, more policies, then small changes to the best so far. Stops at
// the lower bound or when the effort is spent, but never before the built-in schedules.
class Explorer {
 public:
  Explorer(const SearchProblem& problem, const TimeBound& bound, std::int64_t effort);

  Exploration explore(std::span<const BuiltInOrder> built_in_orders);

 private:
  void consider(const Order& order, const Score& score, const std::string& method);
  Score offer(const Order& order, const std::string& method);
  void offer_with_moved_weights(const Order& order, const std::string& method);
  bool try_policy(const Policy& policy);
  void try_policies(std::span<const int> warmup_overshoots);
  void try_patterns();
  Order offer_pattern(PatternShape shape);
  void improve_policy();
  void improve_warmup();
  void fuse_best();

  std::int64_t num_actions() const {
    return scheduler_.num_actions_played() + num_actions_evaluated_;
  }
  Duration best_time() const { return best_.score.by(problem_.objective); }
  bool is_done() const { return best_time() <= bound_ || num_actions() >= effort_; }

  const SearchProblem& problem_;
  Duration bound_;
  std::int64_t effort_;
  std::int64_t num_actions_evaluated_ = 0;
  ListScheduler scheduler_;
  Policy best_policy_;  // of the candidates that list scheduling made; others may be ahead of it
  Score best_listed_;   // the score it got
  Exploration best_;
};

}  // namespace penstock
