#include "penstock/plan/passes/add_gradient_reduction.h"

#include <gtest/gtest.h>

#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(AddGradientReduction, FollowsTheLastBackwardOfEachStage) {
  const Schedule order = parse_listing("0: 0F0 . 0B0 (0F1;1B0)OVERLAP_F_B 0I1 0W1 1B1");
  EXPECT_EQ(write_row(add_gradient_reduction(order), 0),
            "0F0 0B0 (0F1;1B0)OVERLAP_F_B 0I1 0W1 0REDUCE_GRAD 1B1 1REDUCE_GRAD");
}

TEST(AddGradientReduction, CountsTheMicrobatchesOfAllRanks) {
  const Schedule order = parse_listing(
      "0: 0F0 0F1 0B0 0B1\n"
      "1: 1F0 1F1 1I1 1I0 1W0 1W1\n");
  EXPECT_EQ(write_listing(add_gradient_reduction(order)),
            "0: 0F0 0F1 0B0 0B1 0REDUCE_GRAD\n"
            "1: 1F0 1F1 1I1 1I0 1W0 1W1 1REDUCE_GRAD\n");
}

TEST(AddGradientReduction, TakesTheOrderOfTheParts) {
  const Schedule order = parse_listing("0: 0F0 1F0 (1B0;0B0)OVERLAP_F_B");
  EXPECT_EQ(write_row(add_gradient_reduction(order), 0),
            "0F0 1F0 (1B0;0B0)OVERLAP_F_B 1REDUCE_GRAD 0REDUCE_GRAD");
}

TEST(AddGradientReduction, HasNothingToDoWithoutBackwards) {
  EXPECT_EQ(write_row(add_gradient_reduction(parse_listing("0: 0F0 0F1")), 0), "0F0 0F1");
}

TEST(AddGradientReduction, ComesBeforeTheReshard) {
  const Schedule order = parse_listing("0: 0UNSHARD 0F0 0B0 0RESHARD");
  EXPECT_EQ(write_row(add_gradient_reduction(order), 0), "0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD");
}

}  // namespace
}  // namespace penstock::testing
