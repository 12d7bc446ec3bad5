#include "penstock/plan/generators/registry.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/prover/check.h"

namespace penstock::testing {
namespace {

// The message of the ArgumentError that `request` throws; "accepted" if there is none.
template <typename Request>
std::string refusal_of(Request&& request) {
  try {
    static_cast<void>(request());
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(std::string_view name, const ScheduleShape& shape) {
  const std::string refusal = refusal_of([&] { return resolve_shape(name, shape); });
  EXPECT_EQ(refusal_of([&] { return make_schedule(name, shape); }), refusal);
  return refusal;
}

std::string refusal_of_name(std::string_view name) {
  return refusal_of([&] { return schedule_family(name).name; });
}

TEST(ScheduleFamilies, HaveTheirNamesFromTheLiterature) {
  std::vector<std::string_view> names;
  for (const ScheduleFamily& family : schedule_families()) {
    names.push_back(family.name);
    EXPECT_FALSE(family.summary.empty());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("ForwardOnly", "GPipe", "1F1B", "LoopedBFS",
                                            "Interleaved1F1B", "InterleavedZeroBubble", "ZB-H1",
                                            "ZB-H2", "ZBVZeroBubble", "DualPipeV", "V-Half",
                                            "V-Min", "VShaped", "Unbalanced", "WithW"));
}

TEST(ScheduleFamilies, DefaultToAShapeTheyExistIn) {
  for (const ScheduleFamily& family : schedule_families()) {
    const Schedule order = make_schedule(family.name, {.num_ranks = 2, .num_microbatches = 3});
    EXPECT_TRUE(check(order).is_valid()) << family.name;
  }
}

TEST(ScheduleFamilyByName, IgnoresCase) {
  EXPECT_EQ(schedule_family("gpipe").name, "GPipe");
  EXPECT_EQ(schedule_family("DUALPIPEV").name, "DualPipeV");
}

TEST(ScheduleFamilyByName, IgnoresDashesAndUnderscores) {
  EXPECT_EQ(schedule_family("zb_h1").name, "ZB-H1");
  EXPECT_EQ(schedule_family("zbh2").name, "ZB-H2");
  EXPECT_EQ(schedule_family("interleaved-zero-bubble").name, "InterleavedZeroBubble");
}

TEST(ScheduleFamilyByName, KnowsTheClassesOfTheReference) {
  EXPECT_EQ(schedule_family("Schedule1F1B").name, "1F1B");
  EXPECT_EQ(schedule_family("ScheduleZBVZeroBubble").name, "ZBVZeroBubble");
  EXPECT_EQ(schedule_family("schedule_forward_only").name, "ForwardOnly");
}

TEST(ScheduleFamilyByName, SuggestsTheNearest) {
  EXPECT_EQ(refusal_of_name("1fb1"), "unknown schedule \"1fb1\"; did you mean \"1F1B\"?");
  EXPECT_EQ(refusal_of_name("ScheduleGPip"),
            "unknown schedule \"ScheduleGPip\"; did you mean \"GPipe\"?");
}

TEST(ScheduleFamilyByName, ListsAllIfNoneIsNear) {
  EXPECT_EQ(refusal_of_name("ring attention"),
            "unknown schedule \"ring attention\"; known are ForwardOnly, GPipe, 1F1B, LoopedBFS, "
            "Interleaved1F1B, InterleavedZeroBubble, ZB-H1, ZB-H2, ZBVZeroBubble, DualPipeV, "
            "V-Half, V-Min, VShaped, Unbalanced, WithW");
  EXPECT_THAT(refusal_of_name(""), ::testing::StartsWith("unknown schedule \"\"; known are "));
  EXPECT_THAT(refusal_of_name("Schedule"), ::testing::StartsWith("unknown schedule \"Schedule\""));
}

TEST(ResolveShape, FillsInTheStagesPerRank) {
  EXPECT_EQ(resolve_shape("1F1B", {.num_ranks = 4, .num_microbatches = 2}).stages_per_rank, 1);
  EXPECT_EQ(resolve_shape("LoopedBFS", {.num_ranks = 4, .num_microbatches = 2}).num_stages(), 8);
  EXPECT_EQ(
      resolve_shape("LoopedBFS", {.num_ranks = 4, .num_microbatches = 2, .stages_per_rank = 3})
          .stages_per_rank,
      3);
}

TEST(ResolveShape, NeedsPositiveCounts) {
  EXPECT_EQ(refusal_of("GPipe", {.num_ranks = 0}), "the number of ranks must be at least 1, not 0");
  EXPECT_EQ(refusal_of("GPipe", {.num_ranks = 2, .num_microbatches = -3}),
            "the number of microbatches must be at least 1, not -3");
  EXPECT_EQ(refusal_of("LoopedBFS", {.stages_per_rank = -1}),
            "the number of stages per rank must be at least 1, not -1");
}

TEST(ResolveShape, KnowsHowManyStagesASchedulePutsOnARank) {
  EXPECT_EQ(refusal_of("1F1B", {.num_ranks = 2, .stages_per_rank = 2}),
            "1F1B needs exactly 1 stage per rank, not 2");
  EXPECT_EQ(refusal_of("ZBVZeroBubble", {.num_ranks = 2, .stages_per_rank = 1}),
            "ZBVZeroBubble needs exactly 2 stages per rank, not 1");
  EXPECT_EQ(refusal_of("DualPipeV", {.num_ranks = 2, .stages_per_rank = 3}),
            "DualPipeV needs exactly 2 stages per rank, not 3");
  EXPECT_EQ(refusal_of("Unbalanced", {.num_ranks = 2, .stages_per_rank = 4}),
            "Unbalanced needs 2 to 3 stages per rank, not 4");
}

TEST(ResolveShape, KnowsTheRanksOfTestLayouts) {
  EXPECT_EQ(refusal_of("VShaped", {.num_ranks = 3}), "VShaped is defined for 2 ranks only, not 3");
}

TEST(ResolveShape, RefusesWhatDoesNotFitIntoMemory) {
  EXPECT_EQ(refusal_of("LoopedBFS", {.num_ranks = 1000, .num_microbatches = 1000000}),
            "1000 ranks x 2 stages per rank x 1000000 microbatches is too large: 6e+09 actions, of "
            "at most 1.34e+08");
  constexpr int kMany = 2147483647;
  EXPECT_THAT(refusal_of("LoopedBFS", {kMany, kMany, kMany}), ::testing::HasSubstr("too large"));
}

// These two are made for at least 2p microbatches and then cut down.
TEST(ResolveShape, CountsTheMicrobatchesThatAreCutAway) {
  for (const std::string_view name : {"DualPipeV", "ZBVZeroBubble"}) {
    EXPECT_THAT(refusal_of([&] { return make_schedule(name, {.num_ranks = 5000}); }),
                ::testing::HasSubstr("too large"))
        << name;
  }
}

}  // namespace
}  // namespace penstock::testing
