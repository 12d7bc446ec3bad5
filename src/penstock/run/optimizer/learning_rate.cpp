#include "penstock/run/optimizer/learning_rate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/optimizer/internal/unknown_name.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kDecayNames = {"constant", "cosine", "linear"};

void require_consistent(const LearningRateSchedule& schedule, std::int64_t step) {
  if (!std::isfinite(schedule.peak) || schedule.peak < 0) {
    throw ArgumentError(
        fmt::format("the learning rate must be a number of at least 0, not {}", schedule.peak));
  }
  if (!(schedule.minimum >= 0) || schedule.minimum > schedule.peak) {
    throw ArgumentError(
        fmt::format("the learning rate cannot decay to {}; the minimum is between 0 and the peak, "
                    "which is {}",
                    schedule.minimum, schedule.peak));
  }
  if (schedule.num_warm_up_steps < 0 || step < 0) {
    throw ArgumentError(
        fmt::format("steps are counted from 0, but there are {} of warm-up, and step {} is asked "
                    "for",
                    schedule.num_warm_up_steps, step));
  }
  if (schedule.decay != Decay::Constant && schedule.num_steps <= schedule.num_warm_up_steps) {
    throw ArgumentError(
        fmt::format("a {} decay needs steps after the warm-up, but of {} steps {} are warm-up; set "
                    "num_steps to those of the whole training",
                    decay_name(schedule.decay), schedule.num_steps, schedule.num_warm_up_steps));
  }
}

// What is left of the way from the peak to the minimum; `done` is the share of the steps.
double remaining_share(Decay decay, double done) {
  switch (decay) {
    case Decay::Constant:
      break;
    case Decay::Cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Decay::Linear:
      return 1 - done;
  }
  return 1;
}

}  // namespace

std::span<const std::string_view> decay_names() {
  return kDecayNames;
}

std::string_view decay_name(Decay decay) {
  return kDecayNames[static_cast<std::size_t>(decay)];
}

Decay parse_decay(std::string_view name) {
  for (std::size_t index = 0; index < kDecayNames.size(); ++index) {
    if (same_name(name, kDecayNames[index])) return static_cast<Decay>(index);
  }
  throw_unknown_name("decay", name, kDecayNames);
}

double learning_rate(const LearningRateSchedule& schedule, std::int64_t step) {
  require_consistent(schedule, step);
  if (step < schedule.num_warm_up_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.num_warm_up_steps);
  }
  if (schedule.decay == Decay::Constant) return schedule.peak;
  if (step >= schedule.num_steps) return schedule.minimum;
  const double done = static_cast<double>(step - schedule.num_warm_up_steps) /
                      static_cast<double>(schedule.num_steps - schedule.num_warm_up_steps);
  return schedule.minimum +
         (schedule.peak - schedule.minimum) * remaining_share(schedule.decay, done);
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace penstock
