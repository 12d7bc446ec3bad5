#include "penstock/plan/search/internal/evaluate.h"

#include <algorithm>

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/search/internal/wires.h"

namespace penstock {
namespace {

constexpr Duration kNotYet{-1};

// Visits each step once; a rank that has to wait is taken up again when a neighbour sends to it.
class Evaluation {
 public:
  Evaluation(const SearchProblem& problem, const Order& order, Trace* trace)
      : problem_(problem),
        order_(order),
        trace_(trace),
        activations_(problem.extent(), kNotYet),
        gradients_(problem.extent(), kNotYet),
        counts_(problem.stages.size()),
        ranks_(problem.ranks.size()),
        wires_(problem.num_ranks()) {
    for (int microbatch = 0; microbatch < problem.num_microbatches; ++microbatch) {
      activations_.at(0, microbatch) = Duration::zero();
    }
    for (int rank = problem.num_ranks() - 1; rank >= 0; --rank) awake_.push_back(rank);
    if (trace != nullptr) {
      *trace = {};
      trace->starts.resize(problem.ranks.size());
    }
  }

  Score play() {
    while (!awake_.empty()) {
      const int rank = awake_.back();
      awake_.pop_back();
      RankState& state = ranks_[static_cast<std::size_t>(rank)];
      state.is_awake = false;
      const std::vector<Step>& steps = order_[static_cast<std::size_t>(rank)];
      while (state.position < steps.size() && try_step(rank, steps[state.position], state)) {
        ++state.position;
      }
    }
    return score();
  }

 private:
  struct RankState {
    std::size_t position = 0;
    Duration first_start = kNotYet;
    Duration free_at{};
    std::int64_t held_bytes = 0;
    std::int64_t peak_bytes = 0;
    bool is_awake = true;
  };

  // False if the step has to wait for another rank, or for ever.
  bool try_step(int rank, Step step, RankState& state) {
    const int index = problem_.rank(rank).stages[step.slot];
    const SearchStage& stage = problem_.stage(index);
    StageCounts& counts = counts_[static_cast<std::size_t>(index)];
    Duration ready{};
    Duration duration = stage.weight_backward;
    switch (step.kind) {
      case ActionKind::Forward:
        ready = activations_.at(index, counts.forwards);
        duration = stage.forward;
        break;
      case ActionKind::WeightBackward:
        if (counts.weights >= counts.inputs) return false;
        break;
      default:
        if (counts.inputs >= counts.forwards) return false;
        ready = gradients_.at(index, counts.inputs);
        duration =
            step.kind == ActionKind::FullBackward ? stage.full_backward : stage.input_backward;
        break;
    }
    if (ready == kNotYet) return false;

    const Duration start = std::max(ready, state.free_at);
    if (state.first_start == kNotYet) state.first_start = start;
    state.free_at = start + duration;
    if (trace_ != nullptr) {
      trace_->starts[static_cast<std::size_t>(rank)].push_back(start);
      trace_->work += duration;
    }
    hand_over(index, step.kind, counts, state.free_at);
    hold(stage, step.kind, state);
    counts.add(step.kind);
    return true;
  }

  void hand_over(int stage, ActionKind kind, const StageCounts& counts, Duration end) {
    const SearchStage& from = problem_.stage(stage);
    if (kind == ActionKind::Forward) {
      if (problem_.is_last_stage(stage)) {
        gradients_.at(stage, counts.forwards) = end;
        return;
      }
      const int to_rank = problem_.stage(stage + 1).rank;
      activations_.at(stage + 1, counts.forwards) =
          wires_.send(from.rank, to_rank, end, from.forward_hop);
      if (to_rank != from.rank) wake(to_rank);
    } else if (makes_input_gradient(kind) && stage > 0) {
      const int to_rank = problem_.stage(stage - 1).rank;
      gradients_.at(stage - 1, counts.inputs) =
          wires_.send(from.rank, to_rank, end, from.backward_hop);
      if (to_rank != from.rank) wake(to_rank);
    }
  }

  static void hold(const SearchStage& stage, ActionKind kind, RankState& state) {
    if (kind == ActionKind::Forward) state.held_bytes += stage.activation_bytes;
    // A B is an I and a W: in its middle it holds what lies between the two.
    if (makes_input_gradient(kind)) {
      state.held_bytes += stage.weight_bytes - stage.activation_bytes;
    }
    state.peak_bytes = std::max(state.peak_bytes, state.held_bytes);
    if (makes_weight_gradient(kind)) state.held_bytes -= stage.weight_bytes;
  }

  void wake(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.is_awake) return;
    state.is_awake = true;
    awake_.push_back(rank);
  }

  Score score() const {
    Score score;
    score.fits = true;
    score.is_complete = true;
    for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
      const RankState& state = ranks_[static_cast<std::size_t>(rank)];
      if (state.position < order_[static_cast<std::size_t>(rank)].size()) return {};
      score.fits = score.fits && state.peak_bytes <= problem_.rank(rank).limit_bytes;
      score.peak_bytes = std::max(score.peak_bytes, state.peak_bytes);
      if (trace_ != nullptr) trace_->peak_bytes.push_back(state.peak_bytes);
    }
    score.span = Duration::zero();
    score.makespan = Duration::zero();
    for (const RankState& state : ranks_) {
      score.span = std::max(score.span, state.free_at - state.first_start);
      score.makespan = std::max(score.makespan, state.free_at);
    }
    return score;
  }

  const SearchProblem& problem_;
  const Order& order_;
  Trace* trace_;
  MicrobatchGrid<Duration> activations_;  // when the input of each F is on its rank
  MicrobatchGrid<Duration> gradients_;    // when the input of each I is
  std::vector<StageCounts> counts_;       // by stage
  std::vector<RankState> ranks_;
  Wires wires_;
  std::vector<int> awake_;
};

}  // namespace

bool is_better(const Score& left, const Score& right, SearchObjective objective) {
  if (left.by(objective) != right.by(objective)) return left.by(objective) < right.by(objective);
  const Duration left_sum = left.span + left.makespan;
  const Duration right_sum = right.span + right.makespan;
  if (left_sum != right_sum) return left_sum < right_sum;
  return left.peak_bytes < right.peak_bytes;
}

Score evaluate(const SearchProblem& problem, const Order& order, Trace* trace) {
  return Evaluation(problem, order, trace).play();
}

}  // namespace penstock
