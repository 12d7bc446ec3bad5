#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/plan/simulator/profile.h"

namespace penstock {

struct BalanceOptions {
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  int num_stages = 1;
  std::int64_t memory_limit_bytes = kNoLimit;  // for the bytes of the layers of one stage
};

// The layers first_layer, ..., end_layer - 1 as one stage, with the sums of their costs.
struct BalancedStage {
  int first_layer = 0;
  int end_layer = 0;
  Duration forward{};
  Duration backward{};
  std::int64_t bytes = 0;

  Duration time() const { return forward + backward; }
  friend bool operator==(const BalancedStage&, const BalancedStage&) = default;
};

// Cuts `layers`, in their order, into stages of at least one layer each, so that the slowest stage
// is as fast as possible; optimal and exact. Among such cuts, the one with the smallest sum of
// squared times, so that the other stages are even too; among these, the one whose last cut is as
// far to the front as possible, then the cut before it, and so on.
//
// What a layer's bytes are is up to the profile: they add up over a stage and must stay within the
// limit. Layers pinned to the first or last stage take the layers before or after them along.
//
// Throws ArgumentError if there are more stages than layers, if the pins contradict each other, on
// negative costs, and if no split is within the limit: the message has the smallest that works.
std::vector<BalancedStage> balance_layers(const std::vector<LayerCost>& layers,
                                          const BalanceOptions& options);

}  // namespace penstock
