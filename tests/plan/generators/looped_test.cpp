#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(LoopedBfs, RunsStageAfterStageAndBackInReverse) {
  EXPECT_EQ(
      write_listing(make_looped_bfs({.num_ranks = 2, .num_microbatches = 3, .stages_per_rank = 2})),
      "0: 0F0 0F1 0F2 2F0 2F1 2F2 . . 2B2 2B1 2B0 0B2 0B1 0B0\n"
      "1: . 1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0\n");
}

TEST(Interleaved1F1B, AlternatesAfterItsWarmUp) {
  EXPECT_EQ(write_listing(make_interleaved_1f1b(
                {.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 2})),
            "0: 0F0 0F1 2F0 2F1 . . 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 . 2B2 . 2B3 . 0B2 . 0B3\n"
            "1: . 1F0 1F1 . 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 . 1B2 . 1B3\n");
}

TEST(Interleaved1F1B, IsTheCsvDumpOfTheReference) {
  EXPECT_EQ(write_csv(make_interleaved_1f1b(
                {.num_ranks = 2, .num_microbatches = 2, .stages_per_rank = 2})),
            "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1\n"
            ",1F0,1F1,,3F0,3B0,3F1,3B1,,1B0,,1B1\n");
}

// The reference refuses the last one, which has rounds of 5 and 4 microbatches.
TEST(Interleaved1F1B, ExistsForAnyNumberOfMicrobatches) {
  for (const int num_microbatches : {10, 7, 9}) {
    const Schedule order = make_interleaved_1f1b(
        {.num_ranks = 4, .num_microbatches = num_microbatches, .stages_per_rank = 2});
    EXPECT_NO_THROW(require_valid(order, {.extent = Extent{8, num_microbatches}}));
  }
}

TEST(InterleavedZeroBubble, FillsWithWeightGradients) {
  EXPECT_EQ(write_listing(make_interleaved_zero_bubble(
                {.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 2})),
            "0: 0F0 0F1 2F0 . 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 "
            "0I2 0W2 0I3 0W3\n"
            "1: . 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 "
            "3W3 1I3 1W2 1W3\n");
}

TEST(InterleavedZeroBubble, WaitsForForwardsOfTheRankBefore) {
  EXPECT_EQ(write_listing(make_interleaved_zero_bubble(
                {.num_ranks = 3, .num_microbatches = 3, .stages_per_rank = 2})),
            "0: 0F0 0F1 0F2 3F0 3F1 . . 3F2 3I0 3W0 3I1 3W1 3I2 3W2 0I0 0W0 0I1 0W1 0I2 0W2\n"
            "1: . 1F0 1F1 1F2 4F0 . 4F1 4I0 4F2 4I1 4W0 4I2 4W1 1I0 4W2 1I1 1W0 1I2 1W1 1W2\n"
            "2: . . 2F0 2F1 2F2 5F0 5I0 5F1 5I1 5F2 5I2 5W0 2I0 5W1 2I1 5W2 2I2 2W0 2W1 2W2\n");
}

TEST(InterleavedZeroBubble, IsTheGoldenFileOfTheReference) {
  EXPECT_EQ(write_row(make_interleaved_zero_bubble(
                          {.num_ranks = 2, .num_microbatches = 8, .stages_per_rank = 2}),
                      1),
            ". 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1F4 1I2 "
            "3W3 1F5 1I3 1W2 3F4 3I4 1W3 3F5 3I5 3W4 1F6 1I4 3W5 1F7 1I5 1W4 3F6 3I6 1W5 3F7 3I7 "
            "3W6 1I6 3W7 1I7 1W6 1W7");
}

}  // namespace
}  // namespace penstock::testing
