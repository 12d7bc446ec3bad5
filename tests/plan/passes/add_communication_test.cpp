#include "penstock/plan/passes/add_communication.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/passes/merge_backwards.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"
#include "tests/support/step_simulator.h"

namespace penstock::testing {
namespace {

TEST(AddCommunication, PlacesReceivesAsEarlyAsPossible) {
  const Schedule program =
      add_communication(parse_listing("0: 0F0 0F1 . 0B0 . 0B1\n"
                                      "1: . 1F0 1B0 1F1 1B1 .\n"));
  EXPECT_EQ(write_listing(program),
            "0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1: 1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n");
  EXPECT_EQ(simulated_steps(program), 11);
}

// In this vector of the reference's tests B and W of one microbatch stand side by side, from the
// time when B meant the input gradient alone.
TEST(AddCommunication, NeedsNoTransferAtTheTurnOfAV) {
  const Schedule program =
      add_communication(parse_listing("0: 0F0 0F1 . 3F0 3B0 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1\n"
                                      "1: . 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 2W1 1W0 1W1\n"));
  EXPECT_EQ(write_listing(program),
            "0: 0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 3SEND_B1 "
            "0RECV_B0 0B0 3W0 0RECV_B1 0B1 3W1 0W0 0W1\n"
            "1: 1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1 2B0 2RECV_B1 1B0 "
            "1SEND_B0 2B1 1B1 1SEND_B1 2W0 2W1 1W0 1W1\n");
  EXPECT_EQ(simulated_steps(program), 24);
}

TEST(AddCommunication, CarriesZbvDownAndUpTheV) {
  const Schedule order = make_zbv_zero_bubble({.num_ranks = 2, .num_microbatches = 2});
  EXPECT_EQ(write_listing(add_communication(compute_actions(order))),
            "0: 0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3I0 3SEND_B0 3RECV_F1 3W0 3F1 3I1 3SEND_B1 "
            "0RECV_B0 3W1 0I0 0W0 0RECV_B1 0I1 0W1\n"
            "1: 1RECV_F0 1F0 1RECV_F1 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1 2I0 2W0 2RECV_B1 1I0 "
            "1SEND_B0 1W0 2I1 2W1 1I1 1SEND_B1 1W1\n");
}

TEST(AddCommunication, FollowsTheMergedZeroBubbleOrder) {
  const Schedule program = add_communication(merge_backwards(
      make_interleaved_zero_bubble({.num_ranks = 2, .num_microbatches = 8, .stages_per_rank = 2})));
  EXPECT_THAT(write_row(program, 1),
              ::testing::StartsWith(
                  "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3RECV_F1 3I0 3SEND_B0 "
                  "1RECV_B0 3F1 1RECV_F2 3I1 3SEND_B1 1RECV_B1 3W0 "));
  EXPECT_EQ(simulated_steps(program), 113);
}

TEST(AddCommunication, SendsBothResultsOfAContainerAfterIt) {
  const Schedule order = parse_listing(
      "0: 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n"
      "1: 1F0 2F0 1F1 2B0 (2F1;1B0)OVERLAP_F_B 2B1 1B1\n");
  EXPECT_EQ(write_row(add_communication(order), 1),
            "1RECV_F0 1F0 1RECV_F1 2F0 2SEND_F0 1F1 2RECV_B0 2B0 (2F1;1B0)OVERLAP_F_B 2SEND_F1 "
            "1SEND_B0 2RECV_B1 2B1 1B1 1SEND_B1");
}

TEST(AddCommunication, AddsNothingOnOneRank) {
  const Schedule order = parse_listing("0: 0F0 1F0 1B0 0B0");
  EXPECT_EQ(add_communication(order), order);
}

TEST(AddCommunication, KeepsParameterActionsInTheirPlace) {
  const Schedule program =
      add_communication(parse_listing("0: 0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD\n"
                                      "1: 1UNSHARD 1F0 1B0 1REDUCE_GRAD 1RESHARD\n"));
  EXPECT_EQ(write_listing(program),
            "0: 0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD\n"
            "1: 1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD\n");
}

// Valid rank by rank, but no order of all actions together satisfies it.
TEST(AddCommunication, ExplainsAnOrderThatCannotRun) {
  const Schedule order = parse_listing(
      "0: 0F0 0B0 0F1 0B1\n"
      "1: 1F0 1F1 1B0 1B1\n");
  try {
    add_communication(order);
    FAIL() << "accepted";
  } catch (const ScheduleError& error) {
    EXPECT_STREQ(error.what(),
                 "invalid schedule: rank 0, step 1 (0B0): deadlock in any transport: rank 0 waits "
                 "at step 1 (0B0) for rank 1 to run step 2 (1B0); rank 1 waits at step 1 (1F1) for "
                 "rank 0 to run step 2 (0F1)");
  }
}

TEST(AddCommunication, ExplainsAnInputThatNobodyComputes) {
  const Schedule order = parse_listing(
      "0: 0F0\n"
      "1: 1F0 1F1\n");
  try {
    add_communication(order);
    FAIL() << "accepted";
  } catch (const ScheduleError& error) {
    EXPECT_STREQ(error.what(), "invalid schedule: rank 0: 0F1 is missing");
  }
}

}  // namespace
}  // namespace penstock::testing
