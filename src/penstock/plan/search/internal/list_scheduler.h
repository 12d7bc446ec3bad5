#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/search/internal/evaluate.h"
#include "penstock/plan/search/internal/order.h"
#include "penstock/plan/search/internal/wakeup_tree.h"
#include "penstock/plan/search/internal/wires.h"

namespace penstock {

// What a free rank does when it has a choice: an I that can run always runs; these decide whether
// an F may delay the next I, and whether a W does.
struct Policy {
  static constexpr Duration kAsWorstRank{-1};

  // An F may push back the next I by this part of its own time, in thousandths: before the rank's
  // first I, and after it.
  int warmup_overshoot = 1000;
  int steady_overshoot = 1000;
  // A W that is longer than the wait for the next input runs all the same once waiting would bring
  // the rank's idle time above this. kAsWorstRank: above that of the worst rank so far.
  Duration idle_budget = kAsWorstRank;
  // Microbatches between F and I on stage 0; deeper stages get their share. 0: as many as fit.
  int max_in_flight = 0;
  // Which stage of the rank goes first when several can.
  bool deepest_forward_first = true;
  bool deepest_input_first = true;

  friend bool operator==(const Policy&, const Policy&) = default;
};

// "list scheduling, warm-up 0.85, steady 1.00, at most 16 in flight"
std::string to_string(const Policy& policy);

// Plays all ranks forward in time and lets a policy choose what a free rank does next. An order
// that it completes fits into memory.
class ListScheduler {
 public:
  explicit ListScheduler(const SearchProblem& problem);

  // Each returns false, with a partial order(), when the order waits for itself or cannot become
  // shorter than `best`.
  bool run(const Policy& policy, const Score& best);
  // With a given number of forwards before the first I of each rank.
  bool run_with_warmup(const Policy& policy, const Score& best,
                       const std::vector<int>& warmup_depths);
  // Keeps the F and I of `base` in their order; only the places of the W's are chosen.
  bool run_with_order(const Policy& policy, const Score& best, const Order& base);

  const Order& order() const { return order_; }
  std::int64_t num_actions_played() const { return num_actions_played_; }

 private:
  struct StageState {
    StageCounts counts;
    int max_in_flight = 0;
    std::int64_t reserve_bytes = 0;
    Duration first_input_due{};  // I of microbatch 0 starts no earlier
  };
  struct RankState {
    Duration free_at{};
    Duration idle{};
    std::optional<Duration> first_start;
    std::int64_t held_bytes = 0;
    std::int64_t deferred_bytes = 0;  // of these, what the next W's would release
    int num_forwards = 0;
    int num_inputs = 0;
    int num_deferred = 0;
    std::size_t base_position = 0;
  };
  struct Choice {
    int slot = kNothing;
    ActionKind kind = ActionKind::Idle;
    Duration wake_at = kNever;  // when to look again, if there is nothing to do

    static constexpr int kNothing = -1;
  };
  // The F and I of a rank that could run now, and when the next ones could.
  struct Ready {
    int input_slot = Choice::kNothing;
    int forward_slot = Choice::kNothing;
    Duration next_input = kNever;
    Duration next_forward = kNever;
    bool needs_weights = false;  // an F or I that has its input waits for the room of deferred W's
  };

  void start(const Policy& policy);
  bool play(const Score& best);
  Choice choose(int rank, Duration now) const;
  void find_input(int rank, int slot, Duration now, Ready& ready) const;
  void find_forward(int rank, int slot, Duration now, Ready& ready) const;
  bool may_run_forward(int rank, Duration now, const Ready& ready) const;
  bool is_next_of_base(int rank, int slot, bool is_forward) const;
  void skip_weights_of_base(int rank);
  int oldest_deferred_slot(int rank) const;

  void perform(int rank, Duration now, const Choice& choice);
  void hand_over_activation(int rank, int stage, int microbatch, Duration end);
  void hand_over_gradient(int rank, int stage, int microbatch, Duration end);
  void wake(int rank, Duration arrival);
  void delay_first_input(int stage, Duration start);

  StageState& state_of_stage(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  const StageState& state_of_stage(int stage) const {
    return stages_[static_cast<std::size_t>(stage)];
  }
  RankState& state_of_rank(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankState& state_of_rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  const SearchProblem& problem_;
  Policy policy_;
  const std::vector<int>* warmup_depths_ = nullptr;
  const Order* base_ = nullptr;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  WakeupTree wakeups_;
  Wires wires_;
  MicrobatchGrid<Duration> activations_;  // when the input of each F is on its rank
  MicrobatchGrid<Duration> gradients_;    // when the input of each I is
  Order order_;
  Duration worst_idle_{};
  std::int64_t num_left_ = 0;
  std::int64_t num_actions_played_ = 0;
};

}  // namespace penstock
