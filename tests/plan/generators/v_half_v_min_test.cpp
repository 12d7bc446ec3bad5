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
using ::testing::Le;

int makespan(const Schedule& order) {
  return run_in_unit_time(order).makespan;
}

TEST(VHalf, KeepsHalfOfTheMemoryOf1F1B) {
  for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
    const int most = 2 * ((num_ranks + 2) / 2);
    for (int num_microbatches = 1; num_microbatches <= 48; ++num_microbatches) {
      const Schedule order =
          make_v_half({.num_ranks = num_ranks, .num_microbatches = num_microbatches});
      const CheckReport report = check(order);
      ASSERT_TRUE(report.is_valid());
      ASSERT_THAT(report.peak_activations, Each(Le(most)))
          << num_ranks << " ranks, " << num_microbatches << " microbatches";
    }
  }
}

TEST(VMin, KeepsAThirdOfTheMemoryOf1F1B) {
  for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
    const int most = 2 * ((num_ranks + 4) / 3);
    for (int num_microbatches = 1; num_microbatches <= 48; ++num_microbatches) {
      const Schedule order =
          make_v_min({.num_ranks = num_ranks, .num_microbatches = num_microbatches});
      const CheckReport report = check(order);
      ASSERT_TRUE(report.is_valid());
      ASSERT_THAT(report.peak_activations, Each(Le(most)))
          << num_ranks << " ranks, " << num_microbatches << " microbatches";
    }
  }
}

// The bounds are reached: a tighter schedule would be another one.
TEST(VHalf, UsesTheMemoryItMay) {
  for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
    const CheckReport report = check(make_v_half({.num_ranks = num_ranks, .num_microbatches = 48}));
    EXPECT_THAT(report.peak_activations, ::testing::Contains(2 * ((num_ranks + 2) / 2)))
        << num_ranks << " ranks";
  }
}

TEST(VMin, UsesTheMemoryItMay) {
  for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
    const CheckReport report = check(make_v_min({.num_ranks = num_ranks, .num_microbatches = 48}));
    EXPECT_THAT(report.peak_activations, ::testing::Contains(2 * ((num_ranks + 4) / 3)))
        << num_ranks << " ranks";
  }
}

// The work of a rank is 6m units: F, I and W of two stages.
TEST(VHalf, WaitsAboutThreeUnitsPerRank) {
  for (int num_ranks = 3; num_ranks <= 16; ++num_ranks) {
    const int idle = num_ranks % 2 == 0 ? 3 * num_ranks - 7 : 3 * num_ranks - 4;
    for (int num_microbatches = num_ranks; num_microbatches <= 48; ++num_microbatches) {
      ASSERT_EQ(
          makespan(make_v_half({.num_ranks = num_ranks, .num_microbatches = num_microbatches})),
          6 * num_microbatches + idle)
          << num_ranks << " ranks, " << num_microbatches << " microbatches";
    }
  }
}

TEST(VHalf, TakesItsTimeOnEightRanks) {
  EXPECT_EQ(makespan(make_v_half({.num_ranks = 8, .num_microbatches = 32})), 209);
}

TEST(VMin, TakesItsTimeOnEightRanks) {
  EXPECT_EQ(makespan(make_v_min({.num_ranks = 8, .num_microbatches = 32})), 216);
}

}  // namespace
}  // namespace penstock::testing
