#pragma once

#include <cstddef>
#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// One value per (stage, microbatch) pair. Indices are not checked.
template <typename Value>
class MicrobatchGrid {
 public:
  MicrobatchGrid() = default;
  explicit MicrobatchGrid(Extent extent, const Value& value = {})
      : num_microbatches_(static_cast<std::size_t>(extent.num_microbatches)),
        values_(static_cast<std::size_t>(extent.num_stages) * num_microbatches_, value) {}

  Value& at(int stage, int microbatch) { return values_[offset(stage, microbatch)]; }
  const Value& at(int stage, int microbatch) const { return values_[offset(stage, microbatch)]; }

 private:
  std::size_t offset(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * num_microbatches_ +
           static_cast<std::size_t>(microbatch);
  }

  std::size_t num_microbatches_ = 0;
  std::vector<Value> values_;
};

}  // namespace penstock
