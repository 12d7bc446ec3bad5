#include "penstock/plan/search/internal/periodic_order.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace penstock {
namespace {

// Which parts of the period one rank is busy in.
class BusyTimes {
 public:
  explicit BusyTimes(int period) : period_(period) {}

  // Takes the first `duration` from `ready` on that is free in every repetition. Nothing if there
  // is none: whatever starts a period later meets the same obstacles again.
  std::optional<int> take(int ready, int duration) {
    int start = ready;
    while (start <= ready + period_) {
      const int delay = time_until_free(start % period_, duration);
      if (delay == 0) {
        busy_.push_back({start % period_, start % period_ + duration});
        return start;
      }
      start += delay;
    }
    return std::nullopt;
  }

 private:
  struct Interval {
    int begin;  // within the period; `end` may lie in the next one
    int end;
  };

  // How long the first obstacle for [offset, offset + duration) lasts from `offset` on.
  int time_until_free(int offset, int duration) const {
    if (duration > period_) return 2 * period_;
    for (const Interval& interval : busy_) {
      for (const int shift : {-period_, 0, period_}) {
        const bool overlaps =
            interval.begin + shift < offset + duration && offset < interval.end + shift;
        if (overlaps) return interval.end + shift - offset;
      }
    }
    return 0;
  }

  int period_;
  std::vector<Interval> busy_;
};

struct PlacedStep {
  int start;
  Step step;
};

// The steps of microbatch 0, by rank.
class Pattern {
 public:
  Pattern(const SearchProblem& problem, const PatternTimes& times)
      : problem_(problem),
        times_(times),
        busy_(problem.ranks.size(), BusyTimes(times.period)),
        steps_(problem.ranks.size()) {}

  // False if the period has no room for it.
  bool place() {
    const int num_stages = problem_.num_stages();
    for (int stage = 0; stage < num_stages; ++stage) {
      if (stage > 0) ready_ += hop_between(stage - 1, stage);
      if (!add(stage, ActionKind::Forward, times_.forward)) return false;
    }
    std::vector<int> input_ends(problem_.stages.size());
    for (int stage = num_stages - 1; stage >= 0; --stage) {
      if (!add(stage, ActionKind::InputBackward, times_.input_backward)) return false;
      input_ends[static_cast<std::size_t>(stage)] = ready_;
      if (stage > 0) ready_ += hop_between(stage, stage - 1);
    }
    for (int stage = num_stages - 1; stage >= 0; --stage) {
      ready_ = input_ends[static_cast<std::size_t>(stage)];
      if (!add(stage, ActionKind::WeightBackward, times_.weight_backward)) return false;
    }
    return true;
  }

  // All microbatches: in turn t, a step of turn s of the pattern works on microbatch t - s.
  Order repeat() {
    Order order(problem_.ranks.size());
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      std::vector<PlacedStep>& steps = steps_[rank];
      std::sort(steps.begin(), steps.end(), [&](const PlacedStep& left, const PlacedStep& right) {
        return left.start % times_.period < right.start % times_.period;
      });
      int last_turn = 0;
      for (const PlacedStep& placed : steps) {
        last_turn = std::max(last_turn, placed.start / times_.period);
      }
      for (int turn = 0; turn < problem_.num_microbatches + last_turn; ++turn) {
        for (const PlacedStep& placed : steps) {
          const int microbatch = turn - placed.start / times_.period;
          const bool exists = microbatch >= 0 && microbatch < problem_.num_microbatches;
          if (exists) order[rank].push_back(placed.step);
        }
      }
    }
    return order;
  }

 private:
  bool add(int stage, ActionKind kind, int duration) {
    const SearchStage& place = problem_.stage(stage);
    const auto rank = static_cast<std::size_t>(place.rank);
    const std::optional<int> start = busy_[rank].take(ready_, duration);
    if (!start) return false;
    steps_[rank].push_back({*start, {static_cast<std::uint8_t>(place.slot), kind}});
    ready_ = *start + duration;
    return true;
  }

  int hop_between(int from_stage, int to_stage) const {
    return problem_.stage(from_stage).rank == problem_.stage(to_stage).rank ? 0 : times_.hop;
  }

  const SearchProblem& problem_;
  PatternTimes times_;
  std::vector<BusyTimes> busy_;  // by rank
  std::vector<std::vector<PlacedStep>> steps_;
  int ready_ = 0;  // when the next step of the way can start
};

}  // namespace

Order make_periodic_order(const SearchProblem& problem, const PatternTimes& times) {
  Pattern pattern(problem, times);
  if (!pattern.place()) return {};
  return pattern.repeat();
}

}  // namespace penstock
