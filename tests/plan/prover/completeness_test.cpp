#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/prover/check.h"
#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckCompleteness, AcceptsFullAndSplitBackwards) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 0B0 0I1 0W1"), IsEmpty());
}

TEST(CheckCompleteness, AcceptsForwardsAlone) {
  EXPECT_THAT(violations_of("0: 0F0 0F1\n1: 1F0 1F1\n"), IsEmpty());
}

TEST(CheckCompleteness, ReportsAMissingForward) {
  EXPECT_THAT(violations_of("0: 0F1 0B0 0B1"), ElementsAre("rank 0: 0F0 is missing"));
}

TEST(CheckCompleteness, ReportsAMissingBackward) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 0B1"),
              ElementsAre("rank 0: 0B0 is missing (or 0I0 and 0W0)"));
}

TEST(CheckCompleteness, ReportsAnInputGradientWithoutItsWeightGradient) {
  EXPECT_THAT(violations_of("0: 0F0 0I0"),
              ElementsAre("rank 0, step 1 (0I0): 0W0, its weight gradient, is missing"));
}

TEST(CheckCompleteness, ReportsAWeightGradientWithoutItsInputGradient) {
  EXPECT_THAT(violations_of("0: 0F0 0W0"),
              ElementsAre("rank 0, step 1 (0W0): 0I0, its input gradient, is missing"));
}

TEST(CheckCompleteness, ReportsAFullBackwardBesideItsHalves) {
  EXPECT_THAT(
      violations_of("0: 0F0 0B0 0I0 0W0"),
      ElementsAre("rank 0, step 2 (0I0): microbatch 0 also has a full backward, 0B0 at step 1",
                  "rank 0, step 3 (0W0): microbatch 0 also has a full backward, 0B0 at step 1"));
}

// torch.distributed.pipelining counts sets of microbatches and accepts these two.
TEST(CheckCompleteness, ReportsDuplicates) {
  EXPECT_THAT(violations_of("0: 0F0 0F0 0B0 0B0"),
              ElementsAre("rank 0, step 1 (0F0): 0F0 runs twice, first at step 0",
                          "rank 0, step 3 (0B0): 0B0 runs twice, first at step 2"));
}

TEST(CheckCompleteness, ReportsOneMicrobatchGoingBackTwiceForAnother) {
  EXPECT_THAT(
      violations_of("0: 0F0 0F1 0B0 0I0 0W0"),
      ElementsAre("rank 0, step 3 (0I0): microbatch 0 also has a full backward, 0B0 at step 2",
                  "rank 0, step 4 (0W0): microbatch 0 also has a full backward, 0B0 at step 2",
                  "rank 0: 0B1 is missing (or 0I1 and 0W1)"));
}

TEST(CheckCompleteness, ReportsADuplicateInsideOfAContainer) {
  EXPECT_THAT(violations_of("0: 0F0 (0F1;0B0)OVERLAP_F_B 0B0 0B1"),
              ElementsAre("rank 0, step 2 (0B0): 0B0 runs twice, first at step 1"));
}

TEST(CheckCompleteness, ReportsAStageNobodyHas) {
  EXPECT_THAT(violations_of("0: 0F0 0B0\n1: 2F0 2B0\n"),
              ElementsAre("stage 1 has no actions on any rank"));
}

TEST(CheckPlacement, ReportsAStageOnTwoRanks) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 0B0\n1: 0B1 1F0 1F1 1B0 1B1\n"),
              ElementsAre("rank 1, step 0 (0B1): stage 0 already has actions on rank 0",
                          "rank 0: 0B1 is missing (or 0I1 and 0W1)"));
}

TEST(CheckPlacement, ReportsAStageOncePerRank) {
  EXPECT_THAT(violations_of("0: 0F0 0B0\n1: 0F0 0B0 1F0 1B0\n2: 0F0 2F0 2B0\n"),
              ElementsAre("rank 1, step 0 (0F0): stage 0 already has actions on rank 0",
                          "rank 2, step 0 (0F0): stage 0 already has actions on rank 0"));
}

TEST(CheckExtent, ReportsWhatIsExpectedAndMissing) {
  EXPECT_THAT(violations_of("0: 0F0 0B0", {.extent = Extent{2, 2}}),
              ElementsAre("rank 0: 0F1 is missing", "rank 0: 0B1 is missing (or 0I1 and 0W1)",
                          "stage 1 has no actions on any rank"));
}

TEST(CheckExtent, ReportsIndicesBeyondTheExpected) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0F1 0B1 1F0 1B0", {.extent = Extent{1, 1}}),
              ElementsAre("actions reach stage 1 and microbatch 1, but there are 1 stages and 1 "
                          "microbatches"));
}

TEST(CheckExtent, AcceptsWhatIsExpected) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 0B0 0B1", {.extent = Extent{1, 2}}), IsEmpty());
}

// A table of two thousand million stages would not fit into memory.
TEST(CheckExtent, ReportsAnAbsurdIndexWithoutMakingRoomForIt) {
  EXPECT_THAT(
      violations_of("0: 2000000000F0 0F0 0B0"),
      ElementsAre("actions reach stage 2000000000 and microbatch 0, which makes 2000000001 "
                  "forwards necessary, but the lists of all ranks together have 3 entries"));
  EXPECT_THAT(
      violations_of("0: 0F2000000000 0F0 0B0"),
      ElementsAre("actions reach stage 0 and microbatch 2000000000, which makes 2000000001 "
                  "forwards necessary, but the lists of all ranks together have 3 entries"));
}

}  // namespace
}  // namespace penstock::testing
