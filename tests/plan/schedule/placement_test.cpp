#include "penstock/plan/schedule/placement.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/csv.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr int kUnplaced = Placement::kUnplaced;

TEST(LoopedPlacement, DealsStagesRoundTheRanks) {
  const Placement placement = looped_placement(2, 5);
  EXPECT_THAT(placement.stages_of(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(placement.stages_of(1), ElementsAre(1, 3));
}

TEST(LoopedPlacement, LeavesRanksWithoutStageWhenThereAreFewer) {
  const Placement placement = looped_placement(3, 2);
  EXPECT_THAT(placement.ranks(), ElementsAre(0, 1));
  EXPECT_THAT(placement.stages_of(2), IsEmpty());
}

TEST(VPlacement, GoesDownAndUpAgain) {
  EXPECT_THAT(v_placement(2, 4).stages_of(0), ElementsAre(0, 3));
  EXPECT_THAT(v_placement(2, 4).stages_of(1), ElementsAre(1, 2));
  EXPECT_THAT(v_placement(3, 6).stages_of(0), ElementsAre(0, 5));
  EXPECT_THAT(v_placement(3, 6).stages_of(1), ElementsAre(1, 4));
  EXPECT_THAT(v_placement(3, 6).stages_of(2), ElementsAre(2, 3));
  EXPECT_THAT(v_placement(2, 6).stages_of(0), ElementsAre(0, 3, 4));
  EXPECT_THAT(v_placement(2, 6).stages_of(1), ElementsAre(1, 2, 5));
  EXPECT_THAT(v_placement(4, 12).ranks(), ElementsAre(0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3));
}

TEST(VPlacement, RejectsAnUnevenNumberOfStages) {
  EXPECT_THAT([] { v_placement(2, 5); },
              ThrowsMessage<ArgumentError>(HasSubstr("5 stages do not divide by 2 ranks")));
}

TEST(Placements, RejectImpossibleCounts) {
  EXPECT_THROW(looped_placement(0, 4), ArgumentError);
  EXPECT_THROW(looped_placement(2, -1), ArgumentError);
  EXPECT_THROW(v_placement(0, 4), ArgumentError);
  EXPECT_THROW(v_placement(-2, 4), ArgumentError);
}

TEST(PlacementOf, FindsStagesInContainersToo) {
  const Schedule schedule = read_csv("0F0,(0F1;5B0)OVERLAP_F_B\n\n1UNSHARD,2F0\n", "test.csv");
  EXPECT_THAT(placement_of(schedule, 6).ranks(), ElementsAre(0, 2, 2, kUnplaced, kUnplaced, 0));
}

TEST(PlacementOf, TakesTheFirstRankThatMentionsAStage) {
  const Schedule schedule = read_csv("1F0\n0F0,1B0\n", "test.csv");
  EXPECT_THAT(placement_of(schedule, 2).ranks(), ElementsAre(1, 0));
}

// The cursor walk by which the reference defines the V placement.
RC_GTEST_PROP(VPlacement, EqualsTheCursorWalk, ()) {
  const int num_ranks = *rc::gen::inRange(1, 20);
  const int num_stages = num_ranks * *rc::gen::inRange(0, 8);
  std::vector<int> ranks;
  int cursor = 0;
  for (int stage = 0; stage < num_stages; ++stage) {
    ranks.push_back(cursor);
    if ((stage + 1) % num_ranks == 0) continue;
    cursor += (stage / num_ranks) % 2 == 0 ? 1 : -1;
  }
  RC_ASSERT(v_placement(num_ranks, num_stages).ranks() == ranks);
}

}  // namespace
}  // namespace penstock
