#include "penstock/plan/passes/merge_backwards.h"

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(MergeBackwards, JoinsNeighboursOfOneStageAndMicrobatch) {
  const Schedule order = parse_listing("0: 0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W2 0W1");
  EXPECT_EQ(write_row(merge_backwards(order), 0), "0F0 0F1 0F2 0I0 0I1 0W0 0B2 0W1");
}

TEST(MergeBackwards, DoesNotSeeIdleSlots) {
  EXPECT_EQ(write_row(merge_backwards(parse_listing("0: . 0F0 0I0 . 0W0 .")), 0), "0F0 0B0");
}

TEST(MergeBackwards, KeepsNeighboursThatDoNotBelongTogether) {
  EXPECT_EQ(write_row(merge_backwards(parse_listing("0: 0I0 1W0 0W0 0I1 0W2")), 0),
            "0I0 1W0 0W0 0I1 0W2");
}

TEST(MergeBackwards, LeavesContainersAlone) {
  const char* row = "0I0 (0F1;0W0)OVERLAP_F_B (0I1;0W1)OVERLAP_F_B";
  EXPECT_EQ(write_row(merge_backwards(parse_listing(std::string("0: ") + row)), 0), row);
}

TEST(SplitBackwards, TurnsEveryFullBackwardIntoItsHalves) {
  EXPECT_EQ(write_row(split_backwards(parse_listing("0: 0F0 . 0F1 0B0 0I1 0W1")), 0),
            "0F0 0F1 0I0 0W0 0I1 0W1");
}

TEST(SplitBackwards, LeavesContainersAlone) {
  const char* row = "0F0 0F1 (1F0;0B0)OVERLAP_F_B";
  EXPECT_EQ(write_row(split_backwards(parse_listing(std::string("0: ") + row)), 0), row);
}

TEST(SplitBackwards, IsTheReverseOfMergeBackwards) {
  for (const ScheduleFamily& family : schedule_families()) {
    const Schedule order = make_schedule(family.name, {.num_ranks = 2, .num_microbatches = 5});
    EXPECT_EQ(merge_backwards(split_backwards(order)), merge_backwards(order)) << family.name;
    EXPECT_EQ(split_backwards(merge_backwards(order)), split_backwards(order)) << family.name;
    EXPECT_EQ(merge_backwards(merge_backwards(order)), merge_backwards(order)) << family.name;
    EXPECT_EQ(split_backwards(split_backwards(order)), split_backwards(order)) << family.name;
  }
}

TEST(SplitBackwards, KeepsSchedulesValid) {
  for (const ScheduleFamily& family : schedule_families()) {
    const Schedule order = make_schedule(family.name, {.num_ranks = 2, .num_microbatches = 5});
    EXPECT_TRUE(check(split_backwards(order)).is_valid()) << family.name;
    EXPECT_TRUE(check(merge_backwards(order)).is_valid()) << family.name;
  }
}

}  // namespace
}  // namespace penstock::testing
