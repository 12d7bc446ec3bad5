#include "penstock/plan/simulator/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

// What a cost may be at most, so that sums of as many as a schedule adds up fit into 64 bits.
struct CostLimit {
  double most = 0;  // nanoseconds or bytes

  void require(double value, double per_unit, std::string_view unit,
               const std::string& what) const {
    if (value <= most) return;
    throw ArgumentError(
        fmt::format("{} {:.6g} {}; with as many actions as this schedule has, at "
                    "most {:.6g} {} can be counted",
                    what, value / per_unit, unit, most / per_unit, unit));
  }
  void require_time(double nanoseconds, const std::string& what) const {
    require(nanoseconds, 1e6, "ms", what);
  }
  void require_bytes(double bytes, const std::string& what) const {
    require(bytes, 1, "bytes", what);
  }
};

void require_not_negative(std::int64_t value, int stage, std::string_view noun) {
  if (value < 0) {
    throw ArgumentError(
        fmt::format("stage {}: {} is {}; costs cannot be negative", stage, noun, value));
  }
}

void require_stage(const StageCost& cost, int stage, const CostLimit& limit) {
  const std::pair<Duration, std::string_view> times[] = {
      {cost.forward, "the time of F"},         {cost.input_backward, "the time of I"},
      {cost.weight_backward, "the time of W"}, {cost.full_backward, "the time of B"},
      {cost.unshard, "the time of UNSHARD"},   {cost.reduce_grad, "the time of REDUCE_GRAD"},
  };
  for (const auto& [time, noun] : times) {
    require_not_negative(time.count(), stage, noun);
    limit.require_time(static_cast<double>(time.count()),
                       fmt::format("stage {}: {} is", stage, noun));
  }
  const std::pair<std::int64_t, std::string_view> sizes[] = {
      {cost.activation_bytes, "the size of an activation"},
      {cost.weight_gradient_bytes, "the size kept for W"},
      {cost.parameter_bytes, "the size of the parameters"},
      {cost.output_bytes, "the size of the output"},
      {cost.input_gradient_bytes, "the size of the input gradient"},
  };
  for (const auto& [bytes, noun] : sizes) {
    require_not_negative(bytes, stage, noun);
    limit.require_bytes(static_cast<double>(bytes), fmt::format("stage {}: {} is", stage, noun));
  }
}

// What takes longer than its own time.
void require_products(const CostModel& costs, const CostLimit& limit) {
  double longest = 0;
  for (int stage = 0; stage < static_cast<int>(costs.stages.size()); ++stage) {
    const StageCost& cost = costs.stage(stage);
    for (const Duration part :
         {cost.forward, cost.full_backward, cost.input_backward, cost.weight_backward}) {
      longest = std::max(longest, static_cast<double>(part.count()));
    }
    if (costs.bytes_per_second <= 0) continue;
    const auto bytes = static_cast<double>(std::max(cost.output_bytes, cost.input_gradient_bytes));
    limit.require_time(
        bytes / costs.bytes_per_second * 1e9,
        fmt::format("stage {}: at {:g} bytes/s, a message takes", stage, costs.bytes_per_second));
  }
  limit.require_time(
      longest * costs.overlap_factor,
      fmt::format("with a factor of {:g}, an overlapped action takes up to", costs.overlap_factor));
}

std::string time_range(std::string_view label, const CostModel& costs, Duration StageCost::*time) {
  const auto by_time = [time](const StageCost& left, const StageCost& right) {
    return left.*time < right.*time;
  };
  const auto [least, most] = std::minmax_element(costs.stages.begin(), costs.stages.end(), by_time);
  if ((*least).*time == (*most).*time) {
    return fmt::format("{} {} ms", label, milliseconds_text((*least).*time));
  }
  return fmt::format("{} {} to {} ms", label, milliseconds_text((*least).*time),
                     milliseconds_text((*most).*time));
}

bool has_time(const CostModel& costs, Duration StageCost::*time) {
  return std::any_of(costs.stages.begin(), costs.stages.end(),
                     [time](const StageCost& cost) { return cost.*time > Duration::zero(); });
}

bool has_separate_full_backward(const CostModel& costs) {
  return std::any_of(costs.stages.begin(), costs.stages.end(), [](const StageCost& cost) {
    return cost.full_backward != cost.input_backward + cost.weight_backward;
  });
}

}  // namespace

CostModel CostModel::uniform(const Uniform& costs) {
  CostModel model;
  model.stages.push_back({.forward = costs.forward,
                          .input_backward = costs.input_backward,
                          .weight_backward = costs.weight_backward,
                          .full_backward = costs.input_backward + costs.weight_backward,
                          .activation_bytes = 1});
  model.hop_latency = costs.hop;
  return model;
}

Duration CostModel::compute_time(const Action& action) const {
  switch (action.kind) {
    case ActionKind::Forward:
      return stage(action.stage).forward;
    case ActionKind::FullBackward:
      return stage(action.stage).full_backward;
    case ActionKind::InputBackward:
      return stage(action.stage).input_backward;
    case ActionKind::WeightBackward:
      return stage(action.stage).weight_backward;
    case ActionKind::Overlap: {
      Duration sum{};
      for (const Action& part : action.parts) sum += compute_time(part);
      return Duration(std::llround(static_cast<double>(sum.count()) * overlap_factor));
    }
    default:
      return Duration::zero();
  }
}

Duration CostModel::wire_time(const Action& send) const {
  if (bytes_per_second <= 0) return Duration::zero();
  const StageCost& cost = stage(send.stage);
  const std::int64_t bytes =
      send.kind == ActionKind::SendForward ? cost.output_bytes : cost.input_gradient_bytes;
  return Duration(std::llround(static_cast<double>(bytes) / bytes_per_second * 1e9));
}

void require_costs(const CostModel& costs, int num_stages, double num_terms) {
  if (costs.stages.size() != 1 && costs.stages.size() != static_cast<std::size_t>(num_stages)) {
    throw ArgumentError(fmt::format("the costs are for {} stages, but the schedule has {}",
                                    costs.stages.size(), num_stages));
  }
  constexpr double kLargestSum = 9e18;
  const CostLimit limit{kLargestSum / std::max(1.0, num_terms)};
  for (int stage = 0; stage < static_cast<int>(costs.stages.size()); ++stage) {
    require_stage(costs.stage(stage), stage, limit);
  }
  const bool has_wires = costs.bytes_per_second >= 0 && std::isfinite(costs.bytes_per_second);
  if (costs.hop_latency < Duration::zero() || !has_wires) {
    throw ArgumentError("the latency and the bandwidth of a hop cannot be negative");
  }
  if (!(costs.overlap_factor >= 0) || !std::isfinite(costs.overlap_factor)) {
    throw ArgumentError("the factor for overlapped actions cannot be negative");
  }
  limit.require_time(static_cast<double>(costs.hop_latency.count()), "the latency of a hop is");
  require_products(costs, limit);
}

void require_costs(const CostModel& costs, const Schedule& program) {
  double num_terms = 0;
  for (const auto& actions : program.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&num_terms](const Action& /*part*/) { ++num_terms; });
    }
  }
  require_costs(costs, extent_of(program).num_stages, num_terms * program.num_ranks());
}

std::string milliseconds_text(Duration time) {
  constexpr std::int64_t kPerMillisecond = 1'000'000;
  std::string text =
      fmt::format("{}.{:06}", time.count() / kPerMillisecond, time.count() % kPerMillisecond);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string describe_costs(const CostModel& costs) {
  std::string text = fmt::format("{}, {}, {}", time_range("F", costs, &StageCost::forward),
                                 time_range("I", costs, &StageCost::input_backward),
                                 time_range("W", costs, &StageCost::weight_backward));
  if (has_separate_full_backward(costs)) {
    text += ", " + time_range("B", costs, &StageCost::full_backward);
  }
  if (has_time(costs, &StageCost::unshard)) {
    text += ", " + time_range("UNSHARD", costs, &StageCost::unshard);
  }
  if (has_time(costs, &StageCost::reduce_grad)) {
    text += ", " + time_range("REDUCE_GRAD", costs, &StageCost::reduce_grad);
  }
  text += fmt::format(", hop {} ms", milliseconds_text(costs.hop_latency));
  if (costs.bytes_per_second > 0) text += fmt::format(", {:g} bytes/s", costs.bytes_per_second);
  if (costs.overlap_factor != 1) text += fmt::format(", overlap x {:g}", costs.overlap_factor);
  if (costs.sends == SendMode::Rendezvous) text += ", rendezvous sends";
  return text;
}

}  // namespace penstock
