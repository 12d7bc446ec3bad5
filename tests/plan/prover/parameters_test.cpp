#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckSharding, AcceptsGatheringAgain) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0RESHARD 0UNSHARD 0B0 0REDUCE_GRAD 0RESHARD"),
              IsEmpty());
}

TEST(CheckSharding, AcceptsStagesThatAreNeverSharded) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0REDUCE_GRAD"), IsEmpty());
  EXPECT_THAT(violations_of("0: 1UNSHARD 0F0 1F0 1B0 1REDUCE_GRAD 1RESHARD 0B0 0REDUCE_GRAD"),
              IsEmpty());
}

TEST(CheckSharding, ReportsAMissingUnshard) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0REDUCE_GRAD 0RESHARD"),
              ElementsAre("rank 0, step 0 (0F0): the parameters of stage 0 are not unsharded",
                          "rank 0, step 1 (0B0): the parameters of stage 0 are not unsharded",
                          "rank 0, step 3 (0RESHARD): stage 0 is not unsharded"));
}

TEST(CheckSharding, ReportsAnUnshardAfterTheFirstUse) {
  EXPECT_THAT(violations_of("0: 0F0 0UNSHARD 0B0 0REDUCE_GRAD 0RESHARD"),
              ElementsAre("rank 0, step 0 (0F0): the parameters of stage 0 are not unsharded"));
}

TEST(CheckSharding, ReportsAReshardBeforeTheLastUse) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0RESHARD 0B0 0REDUCE_GRAD"),
              ElementsAre("rank 0, step 3 (0B0): the parameters of stage 0 are not unsharded"));
}

TEST(CheckSharding, LooksIntoContainers) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 (1F0;0B0)OVERLAP_F_B 0REDUCE_GRAD 0RESHARD 1UNSHARD "
                            "1B0 1REDUCE_GRAD 1RESHARD"),
              ::testing::Contains("rank 0, step 2 ((1F0;0B0)OVERLAP_F_B): the parameters of stage "
                                  "1 are not unsharded"));
}

TEST(CheckSharding, ReportsUnshardingTwice) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0UNSHARD 0B0 0REDUCE_GRAD 0RESHARD"),
              ElementsAre("rank 0, step 2 (0UNSHARD): stage 0 is unsharded already, since step 0"));
}

TEST(CheckSharding, ReportsReshardingTwice) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD 0RESHARD"),
              ElementsAre("rank 0, step 5 (0RESHARD): stage 0 is not unsharded"));
}

TEST(CheckSharding, ReportsAMissingReshard) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0B0 0REDUCE_GRAD"),
              ElementsAre("rank 0, step 0 (0UNSHARD): stage 0 is never resharded after this"));
}

TEST(CheckReduction, ReportsAMissingReduction) {
  EXPECT_THAT(violations_of("0: 0F0 1F0 1B0 1REDUCE_GRAD 0B0"),
              ElementsAre("0REDUCE_GRAD is missing"));
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0B0 0RESHARD"),
              ElementsAre("0REDUCE_GRAD is missing"));
}

TEST(CheckReduction, ReportsReducingTwice) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0REDUCE_GRAD 0REDUCE_GRAD"),
              ElementsAre("rank 0, step 3 (0REDUCE_GRAD): the gradients of stage 0 are reduced "
                          "already, at step 2"));
}

TEST(CheckReduction, ReportsReducingTooEarly) {
  EXPECT_THAT(
      violations_of("0: 0F0 0F1 0B0 0REDUCE_GRAD 0I1 0W1"),
      ElementsAre(
          "rank 0, step 5 (0W1): the gradients of stage 0 are reduced too early, at step 3"));
}

// Without any backward a schedule is for inference, where there is nothing to reduce.
TEST(CheckReduction, ReportsReducingGradientsThatDoNotExist) {
  EXPECT_THAT(violations_of("0: 0F0 0REDUCE_GRAD"),
              ElementsAre("rank 0, step 1 (0REDUCE_GRAD): stage 0 has no backward, so there are no "
                          "gradients to reduce"));
}

TEST(CheckReduction, AcceptsInferenceWithShardedParameters) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0F1 0RESHARD"), IsEmpty());
}

}  // namespace
}  // namespace penstock::testing
