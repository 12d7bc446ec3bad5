#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/plan/schedule/action.h"
#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// Counts what one rank holds while it goes through its actions.
class MemoryMeter {
 public:
  // For a rank that holds `stages` and runs `actions`.
  MemoryMeter(const CostModel& costs, const std::vector<int>& stages,
              const std::vector<Action>& actions)
      : costs_(costs), num_stages_(std::max<std::size_t>(1, stages.size())) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (makes_input_gradient(part.kind)) keeps_activations_ = true;
      });
      if (keeps_activations_) break;
    }
    for (const int stage : stages) bytes_ += costs.stage(stage).parameter_bytes;
    peak_bytes_ = bytes_;
  }

  // What an action makes room for before it starts. The parts of a container overlap, so none of
  // them uses the room that another will release.
  void begin(const Action& action) {
    for_each_part(action, [&](const Action& part) {
      if (part.kind != ActionKind::Forward) return;
      ++activations_;
      bytes_ += costs_.stage(part.stage).activation_bytes;
    });
    peak_activations_ = std::max(peak_activations_, activations_);
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }

  // What it leaves behind and what it gives back.
  void end(const Action& action) {
    for_each_part(action, [&](const Action& part) {
      const StageCost& cost = costs_.stage(part.stage);
      if (part.kind == ActionKind::Forward && !keeps_activations_) {
        bytes_ -= cost.activation_bytes;
        --activations_;
      }
      // A B is an I and a W: in its middle it holds what lies between the two.
      if (makes_input_gradient(part.kind)) {
        bytes_ += cost.weight_gradient_bytes - cost.activation_bytes;
        peak_bytes_ = std::max(peak_bytes_, bytes_);
      }
      if (makes_weight_gradient(part.kind)) {
        bytes_ -= cost.weight_gradient_bytes;
        --activations_;
      }
    });
  }

  std::int64_t bytes() const { return bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  double peak_activations() const {
    return static_cast<double>(peak_activations_) / static_cast<double>(num_stages_);
  }

 private:
  const CostModel& costs_;
  std::size_t num_stages_;
  bool keeps_activations_ = false;  // for a backward; without one, nothing outlives its forward
  std::int64_t activations_ = 0;    // (stage, microbatch) pairs
  std::int64_t peak_activations_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace penstock
