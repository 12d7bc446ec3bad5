#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <torch/optim/optimizer.h>

namespace penstock {

// How the learning rate goes on after the warm-up.
enum class Decay {
  Constant,  // stays
  Cosine,    // to the minimum, along half a wave
  Linear,    // to the minimum, along a line
};

// "constant", "cosine", "linear".
std::span<const std::string_view> decay_names();
std::string_view decay_name(Decay decay);
// The inverse, in any case. Throws ArgumentError, with the nearest name, if there is none.
Decay parse_decay(std::string_view name);

// A learning rate that rises along a line over the first steps, and then decays.
//
//   peak           ,-------.          warm-up 4, 12 steps, linear decay
//               ,-'         `-.
//            ,-'               `-.
//   minimum  |  |  |  |           `--------
//   step     0  1  2  3             11  12
struct LearningRateSchedule {
  double peak = 1e-3;
  double minimum = 0;  // where the decay ends
  Decay decay = Decay::Constant;
  std::int64_t num_warm_up_steps = 0;  // step s of them has (s + 1) / num_warm_up_steps of the peak
  std::int64_t num_steps = 0;  // of the whole training: from this step on, the rate is the minimum
};

// The rate of a step, counted from 0; depends on nothing else. Throws ArgumentError if the schedule
// contradicts itself.
double learning_rate(const LearningRateSchedule& schedule, std::int64_t step);

// Of all parameter groups.
void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace penstock
