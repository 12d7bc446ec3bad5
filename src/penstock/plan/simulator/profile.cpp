#include "penstock/plan/simulator/profile.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "penstock-profile";
constexpr int kVersion = 1;

// One object of a profile and where it is, for messages such as "stages[2].forward_ms: ...".
class Object {
 public:
  Object(const Json& json, std::string path, const std::string& source_name)
      : json_(json), path_(std::move(path)), source_name_(source_name) {
    if (!json.is_object()) fail("", "expected an object");
  }

  // Refuses members that nobody reads, so that a misspelt name is not taken for a default.
  void expect_members(std::initializer_list<std::string_view> known) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string_view nearest = nearest_name(name, {known.begin(), known.size()});
      fail(name, nearest.empty() ? "unknown member"
                                 : fmt::format("unknown member; did you mean {}?", quote(nearest)));
    }
  }

  bool has(std::string_view name) const { return json_.contains(name); }

  double number(std::string_view name, double otherwise) const {
    if (!has(name)) return otherwise;
    const Json& value = json_.at(std::string(name));
    if (!value.is_number())
      fail(name, fmt::format("expected a number, found {}", value.type_name()));
    const double number = value.get<double>();
    if (!std::isfinite(number) || number < 0) {
      fail(name, fmt::format("expected a number that is not negative, found {}", number));
    }
    return number;
  }

  double required_number(std::string_view name) const {
    if (!has(name)) fail(name, "missing");
    return number(name, 0);
  }

  Duration milliseconds(std::string_view name, Duration otherwise) const {
    return has(name) ? required_milliseconds(name) : otherwise;
  }
  Duration required_milliseconds(std::string_view name) const {
    return duration(required_number(name), name);
  }
  // Refuses what is out of range; `what` is for the message.
  Duration duration(double milliseconds, std::string_view what) const {
    try {
      return from_milliseconds(milliseconds, what);
    } catch (const ArgumentError& error) {
      fail("", error.what());
    }
  }

  std::int64_t bytes(std::string_view name) const {
    const double value = number(name, 0);
    constexpr double kMost = 9e15;  // whole numbers are exact below
    if (value > kMost || value != std::floor(value)) {
      fail(name,
           fmt::format("expected a whole number of bytes up to {:.0f}, found {}", kMost, value));
    }
    return static_cast<std::int64_t>(value);
  }

  std::string text(std::string_view name, const std::string& otherwise) const {
    if (!has(name)) return otherwise;
    const Json& value = json_.at(std::string(name));
    if (!value.is_string()) fail(name, fmt::format("expected a text, found {}", value.type_name()));
    return value.get<std::string>();
  }

  [[noreturn]] void fail(std::string_view name, const std::string& problem) const {
    std::string place = path_;
    if (!place.empty() && !name.empty()) place += '.';
    place += name;
    throw Error(fmt::format("{}: {}{}{}", source_name_, place, place.empty() ? "" : ": ", problem));
  }

 private:
  const Json& json_;
  std::string path_;
  const std::string& source_name_;
};

StageCost read_stage(const Object& stage) {
  stage.expect_members({"forward_ms", "input_backward_ms", "weight_backward_ms", "full_backward_ms",
                        "unshard_ms", "reduce_grad_ms", "activation_bytes", "weight_gradient_bytes",
                        "parameter_bytes", "output_bytes", "input_gradient_bytes"});
  StageCost cost;
  cost.forward = stage.required_milliseconds("forward_ms");
  cost.input_backward = stage.required_milliseconds("input_backward_ms");
  cost.weight_backward = stage.required_milliseconds("weight_backward_ms");
  const double both_halves = to_milliseconds(cost.input_backward + cost.weight_backward);
  cost.full_backward =
      stage.has("full_backward_ms")
          ? stage.required_milliseconds("full_backward_ms")
          : stage.duration(both_halves, "the sum of input_backward_ms and weight_backward_ms");
  cost.unshard = stage.milliseconds("unshard_ms", {});
  cost.reduce_grad = stage.milliseconds("reduce_grad_ms", {});
  cost.activation_bytes = stage.bytes("activation_bytes");
  cost.weight_gradient_bytes = stage.bytes("weight_gradient_bytes");
  cost.parameter_bytes = stage.bytes("parameter_bytes");
  cost.output_bytes = stage.bytes("output_bytes");
  cost.input_gradient_bytes = stage.bytes("input_gradient_bytes");
  return cost;
}

LayerCost read_layer(const Object& layer, std::size_t number) {
  layer.expect_members({"name", "forward_ms", "backward_ms", "bytes", "pin"});
  LayerCost cost;
  cost.name = layer.text("name", fmt::format("layer {}", number));
  cost.forward = layer.required_milliseconds("forward_ms");
  cost.backward = layer.milliseconds("backward_ms", {});
  cost.bytes = layer.bytes("bytes");
  const std::string pin = layer.text("pin", "");
  if (pin == "first") {
    cost.pin = LayerCost::Pin::FirstStage;
  } else if (pin == "last") {
    cost.pin = LayerCost::Pin::LastStage;
  } else if (!pin.empty()) {
    layer.fail("pin", fmt::format("expected \"first\" or \"last\", found {}", quote(pin)));
  }
  return cost;
}

template <typename Read>
void for_each_element(const Json& document, std::string_view name, const std::string& source_name,
                      Read&& read) {
  if (!document.contains(name)) return;
  const Json& list = document.at(std::string(name));
  if (!list.is_array() || list.empty()) {
    throw Error(
        fmt::format("{}: {}: expected a list with at least one element", source_name, name));
  }
  for (std::size_t index = 0; index < list.size(); ++index) {
    read(Object(list[index], fmt::format("{}[{}]", name, index), source_name), index);
  }
}

Json parse_document(std::string_view text, const std::string& source_name) {
  // A profile is three levels deep; nothing below that is worth building, or worth a stack.
  constexpr int kDeepest = 4;
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
  try {
    return Json::parse(text.begin(), text.end(), is_shallow);
  } catch (const Json::parse_error& error) {
    const std::size_t offset = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const std::string_view before = text.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    throw ParseError(source_name, static_cast<int>(line), static_cast<int>(offset - line_start) + 1,
                     "not a JSON text");
  } catch (const Json::out_of_range&) {
    throw Error(fmt::format("{}: a number is too large to be read", source_name));
  }
}

}  // namespace

Duration from_milliseconds(double milliseconds, std::string_view what) {
  constexpr double kLongest = 1e9;
  if (!(milliseconds >= 0) || milliseconds > kLongest) {
    throw ArgumentError(fmt::format("{} is {} ms; expected a time from 0 to {:.0f} ms", what,
                                    milliseconds, kLongest));
  }
  return Duration(std::llround(milliseconds * 1e6));
}

Profile read_profile(std::string_view text, const std::string& source_name) {
  const Json json = parse_document(text, source_name);
  const Object document(json, "", source_name);
  if (document.text("format", "") != kFormat) {
    document.fail("format", fmt::format("expected {}", quote(kFormat)));
  }
  if (document.number("version", 0) != kVersion) {
    document.fail("version", fmt::format("expected {}", kVersion));
  }
  document.expect_members({"format", "version", "hop_latency_ms", "bytes_per_second",
                           "overlap_factor", "stages", "layers"});
  Profile profile;
  profile.costs.hop_latency = document.milliseconds("hop_latency_ms", {});
  profile.costs.bytes_per_second = document.number("bytes_per_second", 0);
  profile.costs.overlap_factor = document.number("overlap_factor", 1);
  for_each_element(json, "stages", source_name, [&](const Object& stage, std::size_t) {
    profile.costs.stages.push_back(read_stage(stage));
  });
  for_each_element(json, "layers", source_name, [&](const Object& layer, std::size_t index) {
    profile.layers.push_back(read_layer(layer, index));
  });
  if (profile.costs.stages.empty() && profile.layers.empty()) {
    document.fail("", "neither stages nor layers are given");
  }
  return profile;
}

std::string write_profile(const Profile& profile) {
  Json document;
  document["format"] = kFormat;
  document["version"] = kVersion;
  document["hop_latency_ms"] = to_milliseconds(profile.costs.hop_latency);
  document["bytes_per_second"] = profile.costs.bytes_per_second;
  document["overlap_factor"] = profile.costs.overlap_factor;
  for (const StageCost& cost : profile.costs.stages) {
    Json stage;
    stage["forward_ms"] = to_milliseconds(cost.forward);
    stage["input_backward_ms"] = to_milliseconds(cost.input_backward);
    stage["weight_backward_ms"] = to_milliseconds(cost.weight_backward);
    stage["full_backward_ms"] = to_milliseconds(cost.full_backward);
    stage["unshard_ms"] = to_milliseconds(cost.unshard);
    stage["reduce_grad_ms"] = to_milliseconds(cost.reduce_grad);
    stage["activation_bytes"] = cost.activation_bytes;
    stage["weight_gradient_bytes"] = cost.weight_gradient_bytes;
    stage["parameter_bytes"] = cost.parameter_bytes;
    stage["output_bytes"] = cost.output_bytes;
    stage["input_gradient_bytes"] = cost.input_gradient_bytes;
    document["stages"].push_back(stage);
  }
  for (const LayerCost& cost : profile.layers) {
    Json layer;
    layer["name"] = cost.name;
    layer["forward_ms"] = to_milliseconds(cost.forward);
    layer["backward_ms"] = to_milliseconds(cost.backward);
    layer["bytes"] = cost.bytes;
    if (cost.pin == LayerCost::Pin::FirstStage) layer["pin"] = "first";
    if (cost.pin == LayerCost::Pin::LastStage) layer["pin"] = "last";
    document["layers"].push_back(layer);
  }
  return document.dump(2) + "\n";
}

}  // namespace penstock
