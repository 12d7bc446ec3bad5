#include "penstock/plan/passes/lower.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/passes/add_communication.h"
#include "penstock/plan/passes/add_gradient_reduction.h"
#include "penstock/plan/passes/merge_backwards.h"
#include "penstock/plan/passes/split_overlaps.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"
#include "tests/support/step_simulator.h"

namespace penstock::testing {
namespace {

TEST(Lower, AddsParametersReductionsAndTransfers) {
  const Schedule order =
      make_interleaved_1f1b({.num_ranks = 2, .num_microbatches = 2, .stages_per_rank = 2});
  EXPECT_EQ(write_listing(lower(order)),
            "0: 0UNSHARD 2UNSHARD 0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 "
            "2SEND_F1 2RECV_B0 2B0 2SEND_B0 2RECV_B1 2B1 2SEND_B1 2REDUCE_GRAD 2RESHARD 0RECV_B0 "
            "0B0 0RECV_B1 0B1 0REDUCE_GRAD 0RESHARD\n"
            "1: 1UNSHARD 3UNSHARD 1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 "
            "3RECV_F1 3B0 3SEND_B0 1RECV_B0 3F1 3B1 3SEND_B1 1RECV_B1 3REDUCE_GRAD 3RESHARD 1B0 "
            "1SEND_B0 1B1 1SEND_B1 1REDUCE_GRAD 1RESHARD\n");
}

TEST(Lower, KeepsThePairsOfDualPipeV) {
  EXPECT_EQ(write_row(lower(make_dual_pipe_v({.num_ranks = 2, .num_microbatches = 4})), 1),
            "1UNSHARD 2UNSHARD 1RECV_F0 1F0 1RECV_F1 2F0 2SEND_F0 1RECV_F2 1F1 2F1 2SEND_F1 "
            "2RECV_B0 1F2 2B0 (2F2;1B0)OVERLAP_F_B 2SEND_F2 1SEND_B0 1RECV_F3 2RECV_B1 "
            "(1F3;2B1)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B 2SEND_F3 1SEND_B1 2RECV_B2 2B2 1B2 "
            "1SEND_B2 2RECV_B3 2I3 1I3 1SEND_B3 2W3 2REDUCE_GRAD 2RESHARD 1W3 1REDUCE_GRAD "
            "1RESHARD");
}

TEST(Lower, HandsOverBetweenStagesOfOneRank) {
  EXPECT_EQ(write_row(lower(make_unbalanced({.num_ranks = 2, .num_microbatches = 1})), 0),
            "0UNSHARD 1UNSHARD 4UNSHARD 0F0 1F0 1SEND_F0 4RECV_F0 4F0 4B0 4SEND_B0 4REDUCE_GRAD "
            "4RESHARD 1RECV_B0 1B0 1REDUCE_GRAD 1RESHARD 0B0 0REDUCE_GRAD 0RESHARD");
}

Schedule without_parameter_actions(Schedule program) {
  for (std::vector<Action>& actions : program.ranks) {
    std::erase_if(actions, [](const Action& action) { return action.microbatch == Action::kNone; });
  }
  return program;
}

TEST(Lower, TakesAsManyStepsAsTheReference) {
  const ScheduleShape shape = {.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 2};
  const auto steps = [](const Schedule& order) {
    return simulated_steps(without_parameter_actions(lower(order)));
  };
  EXPECT_EQ(steps(make_looped_bfs(shape)), 50);
  EXPECT_EQ(steps(make_interleaved_1f1b(shape)), 51);
  EXPECT_EQ(steps(make_interleaved_zero_bubble(shape)), 57);
  EXPECT_EQ(steps(make_zbv_zero_bubble(shape)), 47);
}

TEST(Lower, AddsNoParameterActionsWithoutSharding) {
  const Schedule order = make_1f1b({.num_ranks = 2, .num_microbatches = 1});
  EXPECT_EQ(write_listing(lower(order, {.sharding = false})),
            "0: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD\n"
            "1: 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD\n");
}

TEST(Lower, MergesBackwardsIfAsked) {
  const Schedule order = parse_listing("0: 0F0 0I0 . 0W0");
  EXPECT_EQ(write_row(lower(order, {.backwards = Backwards::Merged}), 0),
            "0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD");
}

TEST(Lower, SplitsBackwardsIfAsked) {
  const Schedule order = parse_listing("0: 0F0 0B0");
  EXPECT_EQ(write_row(lower(order, {.backwards = Backwards::Split}), 0),
            "0UNSHARD 0F0 0I0 0W0 0REDUCE_GRAD 0RESHARD");
}

TEST(Lower, PassesOnTheNumberOfActiveStages) {
  const Schedule order = parse_listing("0: 0F0 1F0 1B0 0B0");
  EXPECT_EQ(write_row(lower(order, {.max_active_stages = 1}), 0),
            "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1REDUCE_GRAD 1RESHARD 0UNSHARD 0B0 "
            "0REDUCE_GRAD 0RESHARD");
}

TEST(Lower, TakesForwardOnlyOrders) {
  EXPECT_EQ(write_listing(lower(make_forward_only({.num_ranks = 2, .num_microbatches = 1}))),
            "0: 0UNSHARD 0F0 0SEND_F0 0RESHARD\n"
            "1: 1UNSHARD 1RECV_F0 1F0 1RESHARD\n");
}

TEST(Lower, RefusesWhatIsLoweredAlready) {
  try {
    lower(parse_listing("0: 0F0 0SEND_F0 0RECV_B0 0B0\n1: 1RECV_F0 1F0 1B0 1SEND_B0\n"));
    FAIL() << "accepted";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0, step 1 (0SEND_F0): the schedule is lowered already; a compute order has "
                 "only F, B, I, W and OVERLAP_F_B");
  }
}

TEST(Lower, RefusesAnInvalidOrderWithEveryViolation) {
  try {
    lower(parse_listing("0: 0F0 0B0\n1: 1B0 1F0 1F1 1B1\n"));
    FAIL() << "accepted";
  } catch (const ScheduleError& error) {
    EXPECT_STREQ(error.what(),
                 "invalid schedule: rank 0: 0F1 is missing; rank 0: 0B1 is missing (or 0I1 and "
                 "0W1); rank 1, step 0 (1B0): backward before its forward (1F0 is at step 1)");
    EXPECT_EQ(error.report().num_violations, 3U);
  }
}

// Passes of the reference consume what they are given.
TEST(SplitOverlaps, PutsThePartsOneAfterTheOther) {
  const Schedule paired =
      testing::parse_listing("0: 0F0 (0F1;0B0)OVERLAP_F_B (0B1;0F2)OVERLAP_F_B");
  EXPECT_EQ(split_overlaps(paired), testing::parse_listing("0: 0F0 0F1 0B0 0B1 0F2"));
}

TEST(SplitOverlaps, KeepsIdleSlotsAndEmptyRanks) {
  Schedule schedule = {{{}, {Action{}, parse_action("(1F0;0B0)OVERLAP_F_B"), Action{}}}};
  const Schedule expected = {{{}, {Action{}, parse_action("1F0"), parse_action("0B0"), Action{}}}};
  EXPECT_EQ(split_overlaps(schedule), expected);
}

TEST(SplitOverlaps, LeavesWhatHasNoPairs) {
  const Schedule schedule = make_1f1b({.num_ranks = 3, .num_microbatches = 5});
  EXPECT_EQ(split_overlaps(schedule), schedule);
}

TEST(SplitOverlaps, LetsTheForwardOfAPairSendBeforeTheBackwardStarts) {
  const Schedule order = make_dual_pipe_v({.num_ranks = 2, .num_microbatches = 6});
  const Schedule program = lower(order, {.split_overlaps = true});
  EXPECT_EQ(compute_actions(program), split_overlaps(order));
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) EXPECT_NE(action.kind, ActionKind::Overlap);
  }
}

TEST(Passes, LeaveTheirInputAsItIs) {
  const Schedule order =
      make_interleaved_zero_bubble({.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 2});
  const Schedule before = order;
  static_cast<void>(add_sharding(order));
  static_cast<void>(add_gradient_reduction(order));
  static_cast<void>(add_communication(order));
  static_cast<void>(merge_backwards(order));
  static_cast<void>(split_backwards(order));
  static_cast<void>(lower(order));
  static_cast<void>(compute_actions(order));
  EXPECT_EQ(order, before);
}

}  // namespace
}  // namespace penstock::testing
