#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(ZbvZeroBubble, RunsDownAndUpTheV) {
  EXPECT_EQ(write_listing(make_zbv_zero_bubble({.num_ranks = 2, .num_microbatches = 4})),
            "0: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 "
            "0I2 0W2 0I3 0W3\n"
            "1: . 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 "
            "1I3 1W2 2W3 1W3\n");
}

TEST(ZbvZeroBubble, KeepsTheGapsOfMicrobatchesItDoesNotHave) {
  EXPECT_EQ(write_row(make_zbv_zero_bubble({.num_ranks = 3, .num_microbatches = 2}), 0),
            "0F0 0F1 . . . 5F0 5I0 5W0 5F1 5I1 5W1 . . . 0I0 0W0 . . . 0I1 0W1 . . . . . . . . .");
}

TEST(DualPipeV, OverlapsForwardsWithBackwards) {
  EXPECT_EQ(write_listing(make_dual_pipe_v({.num_ranks = 2, .num_microbatches = 4})),
            "0: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 "
            "(3F3;0B1)OVERLAP_F_B 3B3 0I2 0W2 0I3 0W3\n"
            "1: 1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B "
            "(2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 1I3 2W3 1W3\n");
}

TEST(DualPipeV, IsTheGoldenFileOfTheReference) {
  EXPECT_EQ(
      write_row(make_dual_pipe_v({.num_ranks = 4, .num_microbatches = 10}), 2),
      "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 (2F5;5B1)OVERLAP_F_B (5F4;2B0)OVERLAP_F_B "
      "(2F6;5B2)OVERLAP_F_B (5F5;2B1)OVERLAP_F_B (2F7;5B3)OVERLAP_F_B (5F6;2B2)OVERLAP_F_B "
      "(2F8;5B4)OVERLAP_F_B (5F7;2B3)OVERLAP_F_B (2F9;5B5)OVERLAP_F_B (5F8;2B4)OVERLAP_F_B 5B6 "
      "(5F9;2B5)OVERLAP_F_B 5B7 2B6 5B8 2I7 5I9 2I8 2W7 2I9 5W9 2W8 2W9");
}

// Fewer microbatches than stages: the rest is cut out, and a pair that loses one half is no pair.
TEST(DualPipeV, ExistsForOneMicrobatch) {
  EXPECT_EQ(write_listing(make_dual_pipe_v({.num_ranks = 2, .num_microbatches = 1})),
            "0: 0F0 3F0 3I0 3W0 0B0\n"
            "1: 1F0 2F0 2B0 1B0\n");
}

}  // namespace
}  // namespace penstock::testing
