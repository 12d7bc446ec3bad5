#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(VShaped, RunsOneMicrobatchDownAndUp) {
  EXPECT_EQ(write_listing(make_v_shaped({.num_ranks = 2, .num_microbatches = 1})),
            "0: 0F0 . . 3F0 3B0 . . 0B0\n"
            "1: . 1F0 2F0 . . 2B0 1B0 .\n");
}

TEST(VShaped, RepeatsItselfForMoreMicrobatches) {
  EXPECT_EQ(write_listing(make_v_shaped({.num_ranks = 2, .num_microbatches = 2})),
            "0: 0F0 . . 3F0 3B0 . . 0B0 0F1 . . 3F1 3B1 . . 0B1\n"
            "1: . 1F0 2F0 . . 2B0 1B0 . . 1F1 2F1 . . 2B1 1B1 .\n");
}

TEST(Unbalanced, HasThreeStagesOnOneRankAndTwoOnTheOther) {
  EXPECT_EQ(write_listing(make_unbalanced({.num_ranks = 2, .num_microbatches = 1})),
            "0: 0F0 1F0 . . 4F0 4B0 . . 1B0 0B0\n"
            "1: . . 2F0 3F0 . . 3B0 2B0 . .\n");
}

TEST(WithW, PlacesItsWeightGradientsByHand) {
  EXPECT_EQ(write_listing(make_with_w({.num_ranks = 2, .num_microbatches = 2})),
            "0: 0F0 0F1 2F0 2F1 . 2I0 2W0 0I0 2I1 0W0 0I1 2W1 0W1\n"
            "1: . 1F0 1F1 3F0 3I0 3F1 1I0 3I1 3W0 1I1 1W0 3W1 1W1\n");
}

TEST(WithW, LeavesGapsForAnOddMicrobatch) {
  EXPECT_EQ(write_listing(make_with_w({.num_ranks = 2, .num_microbatches = 1})),
            "0: 0F0 . 2F0 . . 2I0 2W0 0I0 . 0W0 . . .\n"
            "1: . 1F0 . 3F0 3I0 . 1I0 . 3W0 . 1W0 . .\n");
}

}  // namespace
}  // namespace penstock::testing
