#pragma once

#include <unordered_set>

#include "penstock/run/partition/internal/value_flow.h"

namespace penstock {

// Which values each stage must copy when it receives them, because it changes them in place. Throws
// SplitError where a copy would not do.
class InPlaceChanges {
 public:
  InPlaceChanges(const CapturedModel& model, const ValueFlow& flow);

  bool needs_copy(int stage, torch::jit::Value* received) const {
    return copies_[static_cast<std::size_t>(stage)].contains(received);
  }

 private:
  std::vector<std::unordered_set<const torch::jit::Value*>> copies_;  // by stage
};

}  // namespace penstock
