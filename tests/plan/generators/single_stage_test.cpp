#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(ForwardOnly, ForwardsEveryMicrobatchInOrder) {
  EXPECT_EQ(write_listing(make_forward_only({.num_ranks = 2, .num_microbatches = 3})),
            "0: 0F0 0F1 0F2\n"
            "1: 1F0 1F1 1F2\n");
}

TEST(GPipe, RunsAllForwardsThenAllBackwards) {
  EXPECT_EQ(write_row(make_gpipe({.num_ranks = 3, .num_microbatches = 4}), 1),
            "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3");
}

TEST(OneForwardOneBackward, MatchesThePaperOnFourRanks) {
  EXPECT_EQ(write_listing(make_1f1b({.num_ranks = 4, .num_microbatches = 6})),
            "0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5\n"
            "1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5\n"
            "2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5\n"
            "3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5\n");
}

TEST(OneForwardOneBackward, ExistsForFewerMicrobatchesThanRanks) {
  EXPECT_EQ(write_listing(make_1f1b({.num_ranks = 3, .num_microbatches = 1})),
            "0: 0F0 0B0\n"
            "1: 1F0 1B0\n"
            "2: 2F0 2B0\n");
}

}  // namespace
}  // namespace penstock::testing
