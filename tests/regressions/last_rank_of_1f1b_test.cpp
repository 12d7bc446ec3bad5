#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/passes/lower.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

// torch.distributed.pipelining numbers the forwards of the last rank from 1 (3F1 3B0 3F2 3B1 ...),
// because only a warm-up resets its counter. The order it shows is not the one it runs.
TEST(LastRankOf1F1B, ForwardsMicrobatchZeroFirst) {
  const Schedule order = make_1f1b({.num_ranks = 4, .num_microbatches = 6});
  EXPECT_EQ(write_row(order, 3), "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5");
  EXPECT_NO_THROW(lower(order));
}

TEST(LastRankOf1F1B, IsRightWhenItIsTheOnlyRank) {
  const Schedule order = make_1f1b({.num_ranks = 1, .num_microbatches = 2});
  EXPECT_EQ(write_row(order, 0), "0F0 0B0 0F1 0B1");
  EXPECT_NO_THROW(lower(order));
}

}  // namespace
}  // namespace penstock::testing
