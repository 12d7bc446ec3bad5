#include "penstock/plan/simulator/cost_model.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

void require_not_negative(std::int64_t value, int stage, std::string_view noun) {
  if (value < 0) {
    throw ArgumentError(
        fmt::format("stage {}: {} is {}; costs cannot be negative", stage, noun, value));
  }
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

void require_costs(const CostModel& costs, int num_stages) {
  if (costs.stages.size() != 1 && costs.stages.size() != static_cast<std::size_t>(num_stages)) {
    throw ArgumentError(fmt::format("the costs are for {} stages, but the schedule has {}",
                                    costs.stages.size(), num_stages));
  }
  for (int stage = 0; stage < static_cast<int>(costs.stages.size()); ++stage) {
    const StageCost& cost = costs.stage(stage);
    const std::pair<std::int64_t, std::string_view> values[] = {
        {cost.forward.count(), "the time of F"},
        {cost.input_backward.count(), "the time of I"},
        {cost.weight_backward.count(), "the time of W"},
        {cost.full_backward.count(), "the time of B"},
        {cost.unshard.count(), "the time of UNSHARD"},
        {cost.reduce_grad.count(), "the time of REDUCE_GRAD"},
        {cost.activation_bytes, "the size of an activation"},
        {cost.weight_gradient_bytes, "the size kept for W"},
        {cost.parameter_bytes, "the size of the parameters"},
        {cost.output_bytes, "the size of the output"},
        {cost.input_gradient_bytes, "the size of the input gradient"},
    };
    for (const auto& [value, noun] : values) require_not_negative(value, stage, noun);
  }
  const bool has_wires = costs.bytes_per_second >= 0 && std::isfinite(costs.bytes_per_second);
  if (costs.hop_latency < Duration::zero() || !has_wires) {
    throw ArgumentError("the latency and the bandwidth of a hop cannot be negative");
  }
  if (!(costs.overlap_factor >= 0) || !std::isfinite(costs.overlap_factor)) {
    throw ArgumentError("the factor for overlapped actions cannot be negative");
  }
}

}  // namespace penstock
