#include "penstock/plan/search/internal/bounds.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace penstock {
namespace {

// Stage costs under which no action takes longer than it really does. A B is bounded from below by
// an I and a W in a row, so that it needs no case of its own: its gradient leaves at its end,
// which is later.
std::vector<SearchStage> relaxed_stages(const SearchProblem& problem) {
  std::vector<SearchStage> stages = problem.stages;
  for (SearchStage& stage : stages) {
    stage.input_backward = std::min(stage.input_backward, stage.full_backward);
    stage.weight_backward =
        std::min(stage.weight_backward, stage.full_backward - stage.input_backward);
  }
  return stages;
}

// Extremes and sums over the stages of a rank, for one microbatch.
struct RankCosts {
  Duration max_forward{};
  Duration max_input{};
  Duration max_weight{};
  Duration min_weight = kNever;
  Duration forward_and_input{};
  Duration work{};
  std::int64_t min_activation_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t min_weight_bytes = std::numeric_limits<std::int64_t>::max();
};

// How many things of `each` bytes fit, of `count` that there are.
std::int64_t most_that_fit(std::int64_t bytes, std::int64_t each, std::int64_t count) {
  return each > 0 ? std::min(count, bytes / each) : count;
}

// Each bound looks at one rank. `low` and `high` are its first and last stage; it works on v of
// them, for m microbatches.
class Bounds {
 public:
  explicit Bounds(const SearchProblem& problem)
      : problem_(problem),
        m_(problem.num_microbatches),
        stages_(relaxed_stages(problem)),
        down_(stages_.size()),
        up_(stages_.size()) {
    for (int index = 1; index < problem.num_stages(); ++index) {
      const auto here = static_cast<std::size_t>(index);
      const SearchStage& before = stages_[here - 1];
      down_[here] = down_[here - 1] + before.forward + before.forward_hop.total();
      up_[here] = up_[here - 1] + before.input_backward + stages_[here].backward_hop.total();
    }
  }

  TimeBound strongest() const {
    std::vector<Duration> until_last_input;
    TimeBound bound;
    for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
      const RankCosts costs = costs_of(rank);
      const Duration head = head_idle(rank, costs);
      const Duration span = std::max(
          {idle_bound(rank, costs, head), throughput_bound(rank, costs), byte_time_bound(rank)});
      until_last_input.push_back(until_last_input_bound(rank, costs, head));
      bound.span = std::max(bound.span, span);
      bound.makespan = std::max(bound.makespan, down(low(rank)) + span);
    }
    for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
      const Duration span = detour_bound(rank, until_last_input);
      bound.span = std::max(bound.span, span);
      bound.makespan = std::max(bound.makespan, down(low(rank)) + span);
    }
    return bound;
  }

 private:
  const SearchStage& stage(int index) const { return stages_[static_cast<std::size_t>(index)]; }
  int low(int rank) const { return problem_.rank(rank).stages.front(); }
  int high(int rank) const { return problem_.rank(rank).stages.back(); }
  std::int64_t num_slots(int rank) const {
    return static_cast<std::int64_t>(problem_.rank(rank).stages.size());
  }

  // From the start of F on stage 0 to that on `index`, for one microbatch.
  Duration down(int index) const { return down_[static_cast<std::size_t>(index)]; }
  // From the end of I on `index` to the end of I on stage 0, for one microbatch.
  Duration up(int index) const { return up_[static_cast<std::size_t>(index)]; }

  // From the start of F on `from` to the start of I on `to`, for one microbatch.
  Duration round_trip(int from, int to) const {
    const int last = problem_.num_stages() - 1;
    return down(last) - down(from) + stage(last).forward + stage(last).input_backward + up(last) -
           up(to) - stage(to).input_backward;
  }

  RankCosts costs_of(int rank) const {
    RankCosts costs;
    for (const int index : problem_.rank(rank).stages) {
      const SearchStage& one = stage(index);
      costs.max_forward = std::max(costs.max_forward, one.forward);
      costs.max_input = std::max(costs.max_input, one.input_backward);
      costs.max_weight = std::max(costs.max_weight, one.weight_backward);
      costs.min_weight = std::min(costs.min_weight, one.weight_backward);
      costs.forward_and_input += one.forward + one.input_backward;
      costs.min_activation_bytes = std::min(costs.min_activation_bytes, one.activation_bytes);
      costs.min_weight_bytes = std::min(costs.min_weight_bytes, one.weight_bytes);
    }
    costs.work = costs.forward_and_input;
    for (const int index : problem_.rank(rank).stages) costs.work += stage(index).weight_backward;
    return costs;
  }

  std::int64_t max_in_flight(int rank, const RankCosts& costs) const {
    return most_that_fit(problem_.rank(rank).limit_bytes, costs.min_activation_bytes,
                         num_slots(rank) * m_);
  }

  // Idle time before the first I. That is an I on `high`, and the rank's first action was no later
  // than F of the same microbatch on `low`: a round trip lies between. Only forwards run in it, as
  // many as memory holds.
  Duration head_idle(int rank, const RankCosts& costs) const {
    const Duration wait = round_trip(low(rank), high(rank));
    return std::max(Duration::zero(), wait - max_in_flight(rank, costs) * costs.max_forward);
  }

  // Idle time after the start of the last F, which is on `high`. I and W on `low` of the same
  // microbatch are still to come: a round trip. Only that F, the I's of what is in flight, and the
  // W's of what is in flight or put off run in it; memory bounds both together.
  Duration tail_idle(int rank, const RankCosts& costs) const {
    const std::int64_t limit = problem_.rank(rank).limit_bytes;
    const std::int64_t most_inputs = max_in_flight(rank, costs);
    Duration busy{};
    for (std::int64_t inputs = 1; inputs <= most_inputs; ++inputs) {
      const std::int64_t put_off =
          most_that_fit(limit - inputs * costs.min_activation_bytes, costs.min_weight_bytes,
                        num_slots(rank) * m_ - inputs);
      busy = std::max(busy, inputs * costs.max_input + (inputs + put_off) * costs.max_weight);
    }
    const SearchStage& first = stage(low(rank));
    const Duration wait =
        round_trip(high(rank), low(rank)) + first.input_backward + first.weight_backward;
    return std::max(Duration::zero(), wait - stage(high(rank)).forward - busy);
  }

  // Work and idle time. If not all forwards fit before the first I, then the last F comes after it,
  // so head and tail do not overlap and both count.
  Duration idle_bound(int rank, const RankCosts& costs, Duration head) const {
    const bool are_disjoint = num_slots(rank) * m_ > max_in_flight(rank, costs);
    const Duration tail = tail_idle(rank, costs);
    return m_ * costs.work + (are_disjoint ? head + tail : std::max(head, tail));
  }

  // From the first start to the end of the last I: all F and I, the idle time before the first I,
  // and the W's for which memory has no room until after the last I.
  Duration until_last_input_bound(int rank, const RankCosts& costs, Duration head) const {
    const std::int64_t num_weights = num_slots(rank) * m_;
    const std::int64_t put_off =
        most_that_fit(problem_.rank(rank).limit_bytes, costs.min_weight_bytes, num_weights);
    return m_ * costs.forward_and_input + head + (num_weights - put_off) * costs.min_weight;
  }

  // Memory holds h microbatches on `low`, each for a cycle from the start of F to the end of I. So
  // the F after the first k * h of them starts k cycles after the first one, or later; what is left
  // then is at least another cycle and a W, and all work on the microbatches not yet begun.
  Duration throughput_bound(int rank, const RankCosts& costs) const {
    const SearchStage& first = stage(low(rank));
    if (first.activation_bytes == 0) return {};
    const Duration cycle = round_trip(low(rank), low(rank)) + first.input_backward;
    const std::int64_t held =
        std::max<std::int64_t>(1, problem_.rank(rank).limit_bytes / first.activation_bytes);
    Duration bound{};
    for (std::int64_t turns = 1; turns * held < m_; ++turns) {
      const Duration rest =
          std::max(cycle + first.weight_backward, (m_ - turns * held) * costs.work);
      bound = std::max(bound, turns * cycle + rest);
    }
    return bound;
  }

  // Bytes times time: an activation stays from the end of its F to the end of its I, what an I
  // leaves stays at least for the W, and within its span the rank has limit * span to give.
  Duration byte_time_bound(int rank) const {
    double byte_time = 0;
    for (const int index : problem_.rank(rank).stages) {
      const SearchStage& one = stage(index);
      const Duration stay = round_trip(index, index) - one.forward + one.input_backward;
      byte_time +=
          static_cast<double>(one.activation_bytes) * static_cast<double>(stay.count()) +
          static_cast<double>(one.weight_bytes) * static_cast<double>(one.weight_backward.count());
    }
    const std::int64_t limit = std::max<std::int64_t>(1, problem_.rank(rank).limit_bytes);
    constexpr double kRounding = 1e-12;  // more than the few operations above can be off
    return Duration(static_cast<std::int64_t>(static_cast<double>(m_) * byte_time /
                                              static_cast<double>(limit) * (1 - kRounding)));
  }

  // A forward travels from `rank` to a deeper rank, that rank does all its F and I, and the last of
  // these I's travels back, where a W follows it.
  Duration detour_bound(int rank, const std::vector<Duration>& until_last_input) const {
    const int here = low(rank);
    Duration bound{};
    for (int other = 0; other < problem_.num_ranks(); ++other) {
      const int there = low(other);
      if (there < here) continue;
      bound = std::max(bound, down(there) - down(here) +
                                  until_last_input[static_cast<std::size_t>(other)] + up(there) -
                                  up(here) + stage(here).weight_backward);
    }
    return bound;
  }

  const SearchProblem& problem_;
  std::int64_t m_;
  std::vector<SearchStage> stages_;
  std::vector<Duration> down_;
  std::vector<Duration> up_;
};

}  // namespace

std::int64_t reserve_bytes(const SearchProblem& problem, int rank, int slot) {
  const std::vector<int>& stages = problem.rank(rank).stages;
  const SearchStage& own = problem.stage(stages[static_cast<std::size_t>(slot)]);
  std::int64_t reserve = std::max<std::int64_t>(0, own.weight_bytes - own.activation_bytes);
  std::int64_t deeper = 0;
  for (std::size_t next = static_cast<std::size_t>(slot) + 1; next < stages.size(); ++next) {
    const SearchStage& stage = problem.stage(stages[next]);
    reserve = std::max(reserve, deeper + std::max(stage.activation_bytes, stage.weight_bytes));
    deeper += stage.activation_bytes;
  }
  return reserve;
}

std::int64_t smallest_peak_bytes(const SearchProblem& problem, int rank) {
  const SearchStage& first = problem.stage(problem.rank(rank).stages.front());
  return first.activation_bytes + reserve_bytes(problem, rank, 0);
}

TimeBound lower_bound(const SearchProblem& problem) {
  return Bounds(problem).strongest();
}

}  // namespace penstock
