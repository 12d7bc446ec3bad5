#pragma once

#include <cstddef>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/message.h"

namespace penstock {

// Numbers the messages of a program, for tables.
class KeyIndex {
 public:
  explicit KeyIndex(Extent extent) : extent_(extent) {}

  std::size_t size() const {
    return 2 * static_cast<std::size_t>(extent_.num_stages) *
           static_cast<std::size_t>(extent_.num_microbatches);
  }
  bool contains(MessageKey key) const {
    return key.stage >= 0 && key.stage < extent_.num_stages && key.microbatch >= 0 &&
           key.microbatch < extent_.num_microbatches;
  }
  std::size_t operator()(MessageKey key) const {
    const std::size_t cell =
        static_cast<std::size_t>(key.stage) * static_cast<std::size_t>(extent_.num_microbatches) +
        static_cast<std::size_t>(key.microbatch);
    return 2 * cell + (key.direction == Direction::Backward ? 1 : 0);
  }

 private:
  Extent extent_;
};

}  // namespace penstock
