#include "penstock/plan/schedule/schedule.h"

#include <string_view>

#include <gtest/gtest.h>

#include "tests/plan/schedule/from_csv.h"

namespace penstock {
namespace {

TEST(FirstLoweredAction, DoesNotExistInAComputeOrder) {
  const Schedule schedule = from_csv("0F0,,0B0\n(0F1;1B0)OVERLAP_F_B,0I0,0W0\n");
  EXPECT_FALSE(first_lowered_action(schedule).exists());
  EXPECT_FALSE(is_lowered(schedule));
}

TEST(FirstLoweredAction, IsFirstInRankOrder) {
  const Schedule schedule = from_csv("0F0,0B0\n1F0,1F1,1REDUCE_GRAD\n2UNSHARD\n");
  EXPECT_EQ(first_lowered_action(schedule), (Position{.rank = 1, .step = 2}));
  EXPECT_EQ(to_string(action_at(schedule, {.rank = 1, .step = 2})), "1REDUCE_GRAD");
  EXPECT_TRUE(is_lowered(schedule));
}

TEST(NumActions, CountsAContainerOnceAndIdleSlotsNever) {
  EXPECT_EQ(num_actions(from_csv("0F0,,(0F1;1B0)OVERLAP_F_B\n\n1F0\n")), 3U);
}

TEST(ExtentOf, LooksIntoContainers) {
  const Extent extent = extent_of(from_csv("0F0,(0F7;5B0)OVERLAP_F_B\n"));
  EXPECT_EQ(extent.num_stages, 6);
  EXPECT_EQ(extent.num_microbatches, 8);
}

TEST(ExtentOf, IsZeroWithoutActions) {
  const Extent extent = extent_of(from_csv(",,\n\n"));
  EXPECT_EQ(extent.num_stages, 0);
  EXPECT_EQ(extent.num_microbatches, 0);
}

TEST(ExtentOf, HoldsForTheLargestIndices) {
  const Extent extent = extent_of(from_csv("2147483646F2147483646\n"));
  EXPECT_EQ(extent.num_stages, 2147483647);
  EXPECT_EQ(extent.num_microbatches, 2147483647);
}

TEST(ComputeActions, KeepsTheOrderOfTheComputingOnes) {
  EXPECT_EQ(compute_actions(from_csv("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0\n")),
            from_csv("0F0,0B0\n"));
  EXPECT_EQ(compute_actions(from_csv("0F0,,0B0\n,\n")), from_csv("0F0,0B0\n\n"));
}

}  // namespace
}  // namespace penstock
