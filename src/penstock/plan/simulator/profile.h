#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// What one layer of a model costs, before layers are put together into stages.
struct LayerCost {
  enum class Pin { None, FirstStage, LastStage };

  std::string name;
  Duration forward{};
  Duration backward{};
  std::int64_t bytes = 0;
  Pin pin = Pin::None;

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

// Measured costs of a model by stage, by layer, or both. See docs/formats/profile.md.
struct Profile {
  CostModel costs;  // without stages if the profile has none
  std::vector<LayerCost> layers;

  friend bool operator==(const Profile&, const Profile&) = default;
};

std::string write_profile(const Profile& profile);

// Throws Error with `source_name` on text that is not a profile: unknown, missing or negative
// members are named by their path, such as stages[2].forward_ms.
Profile read_profile(std::string_view text, const std::string& source_name);

// `milliseconds`, rounded to the nanosecond. Throws ArgumentError, naming `what`, unless it is
// finite, not negative and below a million seconds.
Duration from_milliseconds(double milliseconds, std::string_view what);

constexpr double to_milliseconds(Duration time) {
  return static_cast<double>(time.count()) / 1e6;
}

}  // namespace penstock
