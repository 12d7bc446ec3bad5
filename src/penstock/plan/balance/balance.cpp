#include "penstock/plan/balance/balance.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/balance/internal/partition.h"

namespace penstock {
namespace {

void require_costs(const std::vector<LayerCost>& layers) {
  constexpr double kMost = 9e18;  // sums must fit into 64 bits
  double time = 0;
  double bytes = 0;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const LayerCost& layer = layers[index];
    if (layer.forward < Duration::zero() || layer.backward < Duration::zero() || layer.bytes < 0) {
      throw ArgumentError(
          fmt::format("layer {} ({}): costs cannot be negative", index, quote(layer.name)));
    }
    time +=
        static_cast<double>(layer.forward.count()) + static_cast<double>(layer.backward.count());
    bytes += static_cast<double>(layer.bytes);
  }
  if (time > kMost || bytes > kMost) {
    throw ArgumentError("the costs of the layers are too large to add up");
  }
}

// The layers as they can be cut: what is pinned together with all that lies between it and its end
// of the model is one unit.
struct Units {
  std::vector<Unit> units;
  int num_pinned_first = 0;  // layers in the first unit because of a pin; 0 if there is none
  int num_pinned_last = 0;

  // The layer with which `unit` begins.
  int first_layer(int unit, int num_layers) const {
    if (unit == 0) return 0;
    if (unit == static_cast<int>(units.size())) return num_layers;
    return std::max(num_pinned_first, 1) - 1 + unit;
  }
};

Units make_units(const std::vector<LayerCost>& layers) {
  const auto num_layers = static_cast<int>(layers.size());
  int first_end = 0;            // behind the last layer pinned to the first stage
  int last_begin = num_layers;  // the first layer pinned to the last stage
  for (int index = num_layers - 1; index >= 0; --index) {
    const LayerCost::Pin pin = layers[static_cast<std::size_t>(index)].pin;
    if (pin == LayerCost::Pin::FirstStage) first_end = std::max(first_end, index + 1);
    if (pin == LayerCost::Pin::LastStage) last_begin = index;
  }
  if (first_end > last_begin) {
    const auto name_of = [&](int index) {
      return quote(layers[static_cast<std::size_t>(index)].name);
    };
    throw ArgumentError(fmt::format(
        "layer {} ({}) is pinned to the first stage, but layer {} ({}) before it to the last",
        first_end - 1, name_of(first_end - 1), last_begin, name_of(last_begin)));
  }
  Units result;
  result.num_pinned_first = first_end;
  result.num_pinned_last = num_layers - last_begin;
  for (int index = 0; index < num_layers; ++index) {
    const LayerCost& layer = layers[static_cast<std::size_t>(index)];
    const bool joins = (index > 0 && index < first_end) || index > last_begin;
    if (!joins) result.units.emplace_back();
    Unit& unit = result.units.back();
    unit.time += layer.forward + layer.backward;
    unit.bytes += layer.bytes;
  }
  return result;
}

// Everything in one stage, whatever the pins say.
Units make_single_unit(const std::vector<LayerCost>& layers) {
  Units result;
  Unit& unit = result.units.emplace_back();
  for (const LayerCost& layer : layers) {
    unit.time += layer.forward + layer.backward;
    unit.bytes += layer.bytes;
  }
  return result;
}

void require_enough_units(const std::vector<LayerCost>& layers, const Units& units,
                          int num_stages) {
  const auto num_units = static_cast<int>(units.units.size());
  if (num_stages <= num_units) return;
  const auto num_layers = static_cast<int>(layers.size());
  const bool has_pins = num_units < num_layers;
  throw ArgumentError(fmt::format("cannot cut {} into {}{}; use at most {}",
                                  counted(num_layers, "layer", "layers"),
                                  counted(num_stages, "stage", "stages"),
                                  has_pins ? " around the pinned ones" : "", num_units));
}

// Names what is too large on its own, if something is.
std::string culprit(const std::vector<LayerCost>& layers, const Units& units, std::int64_t limit) {
  for (std::size_t index = 0; index < layers.size(); ++index) {
    if (layers[index].bytes <= limit) continue;
    return fmt::format("layer {} ({}) alone has {}", index, quote(layers[index].name),
                       counted(layers[index].bytes, "byte", "bytes"));
  }
  const auto pinned = [limit](const Unit& unit, std::string_view stage) {
    if (unit.bytes <= limit) return std::string();
    return fmt::format("what is pinned to the {} stage has {}", stage,
                       counted(unit.bytes, "byte", "bytes"));
  };
  if (units.num_pinned_first > 0) {
    std::string text = pinned(units.units.front(), "first");
    if (!text.empty()) return text;
  }
  return units.num_pinned_last > 0 ? pinned(units.units.back(), "last") : "";
}

void require_limit(const std::vector<LayerCost>& layers, const Units& units,
                   const BalanceOptions& options) {
  const std::int64_t smallest = smallest_largest_bytes(units.units, options.num_stages);
  if (smallest <= options.memory_limit_bytes) return;
  const std::string reason = culprit(layers, units, options.memory_limit_bytes);
  throw ArgumentError(
      fmt::format("no cut into {} fits into {} per stage{}{}; the smallest limit that works is {}",
                  counted(options.num_stages, "stage", "stages"),
                  counted(options.memory_limit_bytes, "byte", "bytes"), reason.empty() ? "" : ": ",
                  reason, counted(smallest, "byte", "bytes")));
}

}  // namespace

std::vector<BalancedStage> balance_layers(const std::vector<LayerCost>& layers,
                                          const BalanceOptions& options) {
  if (layers.empty()) throw ArgumentError("there are no layers to balance");
  if (options.num_stages < 1) {
    throw ArgumentError(
        fmt::format("the number of stages must be at least 1, not {}", options.num_stages));
  }
  require_costs(layers);
  const Units units = options.num_stages == 1 ? make_single_unit(layers) : make_units(layers);
  require_enough_units(layers, units, options.num_stages);
  require_limit(layers, units, options);

  const std::vector<int> cuts =
      partition(units.units, options.num_stages, options.memory_limit_bytes);
  const auto num_layers = static_cast<int>(layers.size());
  std::vector<BalancedStage> stages;
  for (std::size_t index = 0; index + 1 < cuts.size(); ++index) {
    BalancedStage stage = {.first_layer = units.first_layer(cuts[index], num_layers),
                           .end_layer = units.first_layer(cuts[index + 1], num_layers)};
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      const LayerCost& cost = layers[static_cast<std::size_t>(layer)];
      stage.forward += cost.forward;
      stage.backward += cost.backward;
      stage.bytes += cost.bytes;
    }
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace penstock
