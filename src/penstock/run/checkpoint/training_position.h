#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// Where a training run stands, beyond its tensors.
struct TrainingPosition {
  std::int64_t step = 0;      // steps that are done
  std::uint64_t seed = 0;     // of the run's random numbers
  std::string data = "null";  // a JSON text of the caller's: where to go on in the data, say

  friend bool operator==(const TrainingPosition&, const TrainingPosition&) = default;
};

}  // namespace penstock
