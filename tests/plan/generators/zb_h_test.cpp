#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"
#include "tests/support/unit_time.h"

namespace penstock::testing {
namespace {

using ::testing::Each;

TEST(ZbH1, PutsWeightGradientsWhere1F1BWaits) {
  EXPECT_EQ(write_listing(make_zb_h1({.num_ranks = 3, .num_microbatches = 4})),
            "0: 0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3\n"
            "1: 1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3\n"
            "2: 2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3\n");
}

// A third of the bubble of 1F1B, (p - 1) / (3m + p - 1), in its memory: p live microbatches.
TEST(ZbH1, HasTheBubbleAndTheMemoryOfThePaper) {
  for (int num_ranks = 1; num_ranks <= 12; ++num_ranks) {
    for (int num_microbatches = num_ranks; num_microbatches <= 40; ++num_microbatches) {
      const Schedule order =
          make_zb_h1({.num_ranks = num_ranks, .num_microbatches = num_microbatches});
      ASSERT_EQ(run_in_unit_time(order).makespan, 3 * num_microbatches + num_ranks - 1)
          << num_ranks << " ranks, " << num_microbatches << " microbatches";
      ASSERT_THAT(check(order).peak_activations, Each(num_ranks));
    }
  }
}

// No rank waits between its first action and its last, with up to 2p - 1 live microbatches.
TEST(ZbH2, HasNoBubbleFromTwiceTheRanksOn) {
  for (int num_ranks = 1; num_ranks <= 12; ++num_ranks) {
    const int fewest = 2 * num_ranks - 1;
    for (int num_microbatches = fewest; num_microbatches <= 40; ++num_microbatches) {
      const Schedule order =
          make_zb_h2({.num_ranks = num_ranks, .num_microbatches = num_microbatches});
      ASSERT_THAT(run_in_unit_time(order).idle_within, Each(0))
          << num_ranks << " ranks, " << num_microbatches << " microbatches";
      ASSERT_THAT(check(order).peak_activations, Each(2 * num_ranks - 1));
    }
  }
}

}  // namespace
}  // namespace penstock::testing
