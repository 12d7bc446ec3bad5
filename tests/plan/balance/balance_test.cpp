#include "penstock/plan/balance/balance.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using Pin = LayerCost::Pin;

LayerCost layer(int time, int bytes = 0, Pin pin = Pin::None) {
  return {.name = "layer",
          .forward = Duration(time / 3),
          .backward = Duration(time - time / 3),
          .bytes = bytes,
          .pin = pin};
}

std::vector<LayerCost> layers_of(const std::vector<int>& times) {
  std::vector<LayerCost> layers;
  layers.reserve(times.size());
  for (const int time : times) layers.push_back(layer(time));
  return layers;
}

// How many layers each stage gets.
std::vector<int> sizes(const std::vector<LayerCost>& layers, const BalanceOptions& options) {
  std::vector<int> result;
  for (const BalancedStage& stage : balance_layers(layers, options)) {
    result.push_back(stage.end_layer - stage.first_layer);
  }
  return result;
}

std::string error_of(const std::vector<LayerCost>& layers, const BalanceOptions& options) {
  try {
    balance_layers(layers, options);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(Balance, MakesTheSlowestStageFast) {
  EXPECT_THAT(sizes(layers_of({9, 1, 1, 1, 9, 8}), {.num_stages = 3}), ElementsAre(2, 3, 1));
  EXPECT_THAT(sizes(layers_of({1, 2, 3, 4, 5}), {.num_stages = 2}), ElementsAre(3, 2));
}

TEST(Balance, EvensOutTheOtherStages) {
  // The 9 decides; the rest could be 8 + 0, and is 4 + 4.
  EXPECT_THAT(sizes(layers_of({9, 2, 2, 2, 2}), {.num_stages = 3}), ElementsAre(1, 2, 2));
}

TEST(Balance, CutsToTheFrontIfAllElseIsEqual) {
  EXPECT_THAT(sizes(layers_of({0, 0, 0, 0}), {.num_stages = 3}), ElementsAre(1, 1, 2));
  EXPECT_THAT(sizes(layers_of({5, 0, 5}), {.num_stages = 2}), ElementsAre(1, 2));
}

TEST(Balance, AddsUpTheCosts) {
  const std::vector<LayerCost> layers = {
      {.name = "a", .forward = Duration(1), .backward = Duration(2), .bytes = 3},
      {.name = "b", .forward = Duration(10), .backward = Duration(20), .bytes = 30}};
  const std::vector<BalancedStage> stages = balance_layers(layers, {.num_stages = 1});
  EXPECT_THAT(stages, ElementsAre(BalancedStage{.first_layer = 0,
                                                .end_layer = 2,
                                                .forward = Duration(11),
                                                .backward = Duration(22),
                                                .bytes = 33}));
}

TEST(Balance, GivesEveryStageALayer) {
  EXPECT_THAT(sizes(layers_of({100, 1, 1}), {.num_stages = 3}), ElementsAre(1, 1, 1));
}

TEST(Balance, KeepsPinnedLayersAtTheirEnd) {
  std::vector<LayerCost> layers = layers_of({5, 5, 5, 5, 5, 5});
  layers[2].pin = Pin::FirstStage;
  layers[5].pin = Pin::LastStage;
  EXPECT_THAT(sizes(layers, {.num_stages = 3}), ElementsAre(3, 1, 2));
  EXPECT_THAT(sizes(layers, {.num_stages = 4}), ElementsAre(3, 1, 1, 1));
  EXPECT_THAT(sizes(layers, {.num_stages = 1}), ElementsAre(6));
  EXPECT_EQ(error_of(layers, {.num_stages = 5}),
            "cannot cut 6 layers into 5 stages around the pinned ones; use at most 4");
}

TEST(Balance, KeepsToTheLimit) {
  const std::vector<LayerCost> layers = {layer(1, 4), layer(1, 4), layer(1, 1), layer(9, 1)};
  EXPECT_THAT(sizes(layers, {.num_stages = 2}), ElementsAre(3, 1));
  EXPECT_THAT(sizes(layers, {.num_stages = 2, .memory_limit_bytes = 8}), ElementsAre(2, 2));
  EXPECT_THAT(sizes(layers, {.num_stages = 2, .memory_limit_bytes = 6}), ElementsAre(1, 3));
}

TEST(Balance, NamesWhatDoesNotFit) {
  std::vector<LayerCost> layers = {layer(1, 4), layer(1, 7), layer(1, 5)};
  layers[1].name = "wide";
  EXPECT_EQ(error_of(layers, {.num_stages = 2, .memory_limit_bytes = 10}),
            "no cut into 2 stages fits into 10 bytes per stage; the smallest limit that works is "
            "11 bytes");
  EXPECT_EQ(error_of(layers, {.num_stages = 3, .memory_limit_bytes = 6}),
            "no cut into 3 stages fits into 6 bytes per stage: layer 1 (\"wide\") alone has 7 "
            "bytes; the smallest limit that works is 7 bytes");
  layers[1].pin = Pin::FirstStage;
  EXPECT_EQ(error_of(layers, {.num_stages = 2, .memory_limit_bytes = 9}),
            "no cut into 2 stages fits into 9 bytes per stage: what is pinned to the first stage "
            "has 11 bytes; the smallest limit that works is 11 bytes");
}

TEST(Balance, RefusesWhatMakesNoSense) {
  EXPECT_EQ(error_of({}, {.num_stages = 1}), "there are no layers to balance");
  EXPECT_EQ(error_of(layers_of({1}), {.num_stages = 0}),
            "the number of stages must be at least 1, not 0");
  EXPECT_EQ(error_of(layers_of({1, 1}), {.num_stages = 3}),
            "cannot cut 2 layers into 3 stages; use at most 2");
  EXPECT_EQ(error_of({layer(1, -1)}, {.num_stages = 1}),
            "layer 0 (\"layer\"): costs cannot be negative");
  EXPECT_EQ(
      error_of({layer(1, 0, Pin::LastStage), layer(1, 0, Pin::FirstStage)}, {.num_stages = 2}),
      "layer 1 (\"layer\") is pinned to the first stage, but layer 0 (\"layer\") before it "
      "to the last");
}

TEST(Balance, IsFastForManyLayers) {
  std::vector<LayerCost> layers(10'000);
  for (int index = 0; index < 10'000; ++index) {
    layers[static_cast<std::size_t>(index)] = layer(1 + index * 7919 % 1000);
  }
  const std::vector<BalancedStage> stages = balance_layers(layers, {.num_stages = 64});
  EXPECT_EQ(stages.size(), 64U);
  EXPECT_EQ(stages.back().end_layer, 10'000);
}

// A cut with what it is judged by, best first.
struct Judged {
  std::int64_t slowest = 0;
  std::int64_t squares = 0;
  std::vector<int> ends_from_the_back;

  friend auto operator<=>(const Judged&, const Judged&) = default;
};

// The best cut of layers [begin, n) into `num_stages`, with `judged` for those before, by trying
// all; the pins are checked where a stage is made.
void try_all(const std::vector<LayerCost>& layers, const BalanceOptions& options, int begin,
             std::vector<int>& ends, std::optional<Judged>& best) {
  const auto num_layers = static_cast<int>(layers.size());
  if (static_cast<int>(ends.size()) == options.num_stages) {
    if (begin != num_layers) return;
    Judged judged;
    int first = 0;
    for (std::size_t stage = 0; stage < ends.size(); ++stage) {
      std::int64_t time = 0;
      std::int64_t bytes = 0;
      for (int index = first; index < ends[stage]; ++index) {
        const LayerCost& cost = layers[static_cast<std::size_t>(index)];
        time += (cost.forward + cost.backward).count();
        bytes += cost.bytes;
        if (cost.pin == Pin::FirstStage && stage != 0) return;
        if (cost.pin == Pin::LastStage && stage + 1 != ends.size()) return;
      }
      if (bytes > options.memory_limit_bytes) return;
      judged.slowest = std::max(judged.slowest, time);
      judged.squares += time * time;
      first = ends[stage];
    }
    judged.ends_from_the_back.assign(ends.rbegin(), ends.rend());
    if (!best || judged < *best) best = judged;
    return;
  }
  for (int end = begin + 1; end <= num_layers; ++end) {
    ends.push_back(end);
    try_all(layers, options, end, ends, best);
    ends.pop_back();
  }
}

std::optional<Judged> best_of_all(const std::vector<LayerCost>& layers,
                                  const BalanceOptions& options) {
  std::optional<Judged> best;
  std::vector<int> ends;
  try_all(layers, options, 0, ends, best);
  return best;
}

RC_GTEST_PROP(BalanceProperties, FindsWhatTryingAllCutsFinds, ()) {
  const int num_layers = *rc::gen::inRange(1, 9);
  std::vector<LayerCost> layers;
  for (int index = 0; index < num_layers; ++index) {
    const int choice = *rc::gen::inRange(0, 12);
    const Pin pin = choice == 0 ? Pin::FirstStage : choice == 1 ? Pin::LastStage : Pin::None;
    layers.push_back(layer(*rc::gen::inRange(0, 9), *rc::gen::inRange(0, 6), pin));
  }
  BalanceOptions options = {.num_stages = *rc::gen::inRange(1, 6)};
  if (*rc::gen::arbitrary<bool>()) options.memory_limit_bytes = *rc::gen::inRange(0, 20);

  const std::optional<Judged> best = best_of_all(layers, options);
  if (!best) {
    RC_ASSERT_THROWS_AS(balance_layers(layers, options), ArgumentError);
    return;
  }
  const std::vector<BalancedStage> stages = balance_layers(layers, options);
  std::vector<int> ends_from_the_back;
  for (const BalancedStage& stage : stages) {
    ends_from_the_back.insert(ends_from_the_back.begin(), stage.end_layer);
  }
  RC_ASSERT(ends_from_the_back == best->ends_from_the_back);
}

}  // namespace
}  // namespace penstock::testing
