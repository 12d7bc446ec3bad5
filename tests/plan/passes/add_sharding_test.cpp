#include "penstock/plan/passes/add_sharding.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"

namespace penstock::testing {
namespace {

TEST(AddSharding, GathersAheadOfUse) {
  const Schedule order = parse_listing("0: 0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1");
  EXPECT_EQ(write_row(add_sharding(order), 0),
            "0UNSHARD 1UNSHARD 0F0 0F1 1F0 1F1 1B0 1B1 1RESHARD 0B0 0B1 0RESHARD");
}

TEST(AddSharding, ReleasesWhatIsNeededLast) {
  const Schedule order = parse_listing("0: 0F0 4F0 8F0 12F0 8B0 12B0 4B0 0B0");
  EXPECT_EQ(write_row(add_sharding(order), 0),
            "0UNSHARD 4UNSHARD 8UNSHARD 0F0 0RESHARD 12UNSHARD 4F0 8F0 12F0 8B0 8RESHARD 0UNSHARD "
            "12B0 12RESHARD 4B0 4RESHARD 0B0 0RESHARD");
}

TEST(AddSharding, HoldsOneStageAtATimeIfAsked) {
  const Schedule order = parse_listing("0: 0F0 1F0 1B0 0B0");
  EXPECT_EQ(write_row(add_sharding(order, {.max_active_stages = 1}), 0),
            "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1RESHARD 0UNSHARD 0B0 0RESHARD");
}

TEST(AddSharding, GivesAContainerAllItsStages) {
  const Schedule order = parse_listing("0: 0F0 (1F0;0B0)OVERLAP_F_B 1B0");
  EXPECT_EQ(write_row(add_sharding(order, {.max_active_stages = 1}), 0),
            "0UNSHARD 0F0 1UNSHARD (1F0;0B0)OVERLAP_F_B 0RESHARD 1B0 1RESHARD");
}

TEST(AddSharding, LooksIntoAContainerBeyondTheLimit) {
  const Schedule order = parse_listing("0: 0F0 1F0 (2F0;3F0)OVERLAP_F_B");
  EXPECT_EQ(write_row(add_sharding(order), 0),
            "0UNSHARD 1UNSHARD 2UNSHARD 3UNSHARD 0F0 0RESHARD 1F0 1RESHARD "
            "(2F0;3F0)OVERLAP_F_B 2RESHARD 3RESHARD");
}

TEST(AddSharding, ReleasesSeveralStagesInAscendingOrder) {
  const Schedule order = parse_listing("0: 2F0 (1F0;0F0)OVERLAP_F_B 3F0");
  EXPECT_EQ(write_row(add_sharding(order, {.max_active_stages = 1}), 0),
            "2UNSHARD 2F0 2RESHARD 1UNSHARD 0UNSHARD (1F0;0F0)OVERLAP_F_B 0RESHARD 1RESHARD "
            "3UNSHARD 3F0 3RESHARD");
}

TEST(AddSharding, DropsIdleSlots) {
  EXPECT_EQ(write_row(add_sharding(parse_listing("0: . 0F0 . 0B0 .")), 0),
            "0UNSHARD 0F0 0B0 0RESHARD");
}

int num_gathers(const Schedule& schedule, int rank, int stage) {
  const auto& actions = schedule.actions_of(rank);
  return static_cast<int>(std::count(actions.begin(), actions.end(),
                                     Action{.stage = stage, .kind = ActionKind::Unshard}));
}

TEST(AddSharding, GathersLessOftenWithMoreActiveStages) {
  const Schedule order =
      make_interleaved_1f1b({.num_ranks = 4, .num_microbatches = 16, .stages_per_rank = 4});
  EXPECT_EQ(num_gathers(add_sharding(order, {.max_active_stages = 3}), 3, 15), 4);
  EXPECT_EQ(num_gathers(add_sharding(order, {.max_active_stages = 4}), 3, 15), 1);
}

TEST(AddSharding, IsRightForAnyNumberOfActiveStages) {
  const Schedule order =
      make_interleaved_1f1b({.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 4});
  for (int max_active_stages = 1; max_active_stages <= 6; ++max_active_stages) {
    const Schedule sharded = add_sharding(order, {.max_active_stages = max_active_stages});
    EXPECT_NO_THROW(require_valid(sharded, {.rules = {Rule::Form, Rule::Sharding}}));
    EXPECT_TRUE(have_same_compute_order(order, sharded));
  }
}

TEST(AddSharding, NeedsRoomForOneStage) {
  try {
    add_sharding(parse_listing("0: 0F0 0B0"), {.max_active_stages = 0});
    FAIL() << "accepted";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "the number of active stages must be at least 1, not 0");
  }
}

}  // namespace
}  // namespace penstock::testing
