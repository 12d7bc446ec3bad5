#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;

TEST(CheckOrder, ReportsABackwardBeforeItsForward) {
  EXPECT_THAT(violations_of("0: 0B0 0F0"),
              ElementsAre("rank 0, step 0 (0B0): backward before its forward (0F0 is at step 1)"));
  EXPECT_THAT(violations_of("0: 0I0 . 0F0 0W0"),
              ElementsAre("rank 0, step 0 (0I0): backward before its forward (0F0 is at step 2)"));
}

TEST(CheckOrder, ReportsAWeightGradientBeforeItsInputGradient) {
  EXPECT_THAT(violations_of("0: 0F0 0W0 0I0"),
              ElementsAre("rank 0, step 1 (0W0): weight gradient before its input gradient (0I0 is "
                          "at step 2)"));
}

TEST(CheckOrder, ReportsAForwardBeforeThatOfTheLocalStageAbove) {
  EXPECT_THAT(violations_of("0: 1F0 0F0 1B0 0B0"),
              ElementsAre("rank 0, step 0 (1F0): forward before that of the stage it follows (0F0 "
                          "is at step 1)"));
}

TEST(CheckOrder, ReportsABackwardBeforeThatOfTheLocalStageBelow) {
  EXPECT_THAT(violations_of("0: 0F0 1F0 0B0 1I0 1W0"),
              ElementsAre("rank 0, step 2 (0B0): backward before that of the stage it precedes "
                          "(1I0 is at step 3)"));
}

TEST(CheckOrder, ReportsPartsOfAContainerThatNeedEachOther) {
  EXPECT_THAT(violations_of("0: (0F0;0B0)OVERLAP_F_B"),
              ElementsAre("rank 0, step 0 ((0F0;0B0)OVERLAP_F_B): backward before its forward: the "
                          "parts of one container may run at the same time"));
  EXPECT_THAT(violations_of("0: 0F0 (0I0;0W0)OVERLAP_F_B"),
              ElementsAre("rank 0, step 1 ((0I0;0W0)OVERLAP_F_B): weight gradient before its input "
                          "gradient: the parts of one container may run at the same time"));
  EXPECT_THAT(violations_of("0: (0F0;1F0)OVERLAP_F_B 1B0 0B0"),
              ElementsAre("rank 0, step 0 ((0F0;1F0)OVERLAP_F_B): forward before that of the stage "
                          "it follows: the parts of one container may run at the same time"));
  EXPECT_THAT(
      violations_of("0: 0F0 1F0 (1B0;0B0)OVERLAP_F_B"),
      ElementsAre("rank 0, step 2 ((1B0;0B0)OVERLAP_F_B): backward before that of the "
                  "stage it precedes: the parts of one container may run at the same time"));
}

TEST(CheckOrder, NamesTheContainerThatComesTooLate) {
  EXPECT_THAT(
      violations_of("0: 0F0 0B1 (0F1;0B0)OVERLAP_F_B"),
      ElementsAre("rank 0, step 1 (0B1): backward before its forward ((0F1;0B0)OVERLAP_F_B is at "
                  "step 2)"));
}

}  // namespace
}  // namespace penstock::testing
