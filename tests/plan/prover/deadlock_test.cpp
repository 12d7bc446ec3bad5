#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/prover/check.h"
#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckDeadlock, ReportsAComputeOrderThatNoTransportCanRun) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0F1 0B1\n"
                            "1: 1F0 1F1 1B0 1B1\n"),
              ElementsAre("rank 0, step 1 (0B0): deadlock in any transport: rank 0 waits at step 1 "
                          "(0B0) for rank 1 to run step 2 (1B0); rank 1 waits at step 1 (1F1) for "
                          "rank 0 to run step 2 (0F1)"));
}

TEST(CheckDeadlock, ReportsALoweredScheduleThatNoTransportCanRun) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1\n"
                            "1: 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1\n"),
              ElementsAre("rank 0, step 3 (0B0): deadlock even with buffered sends: rank 0 waits "
                          "at step 3 (0B0) for rank 1 to run step 5 (1SEND_B0); rank 1 waits at "
                          "step 3 (1F1) for rank 0 to run step 5 (0SEND_F1)"));
}

constexpr const char* kBothSendActivations =
    "0: 0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 2RECV_B0 2B0 "
    "2SEND_B0 2RECV_B1 2B1 2SEND_B1 0RECV_B0 0B0 0RECV_B1 0B1\n"
    "1: 1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 "
    "3SEND_B1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1\n";

TEST(CheckDeadlock, ReportsTwoRanksThatSendActivationsToEachOther) {
  EXPECT_THAT(violations_of(kBothSendActivations),
              ElementsAre("rank 0, step 3 (0SEND_F1): deadlock under rendezvous (buffered sends "
                          "would complete): rank 0 waits at step 3 (0SEND_F1) for rank 1 to run "
                          "step 3 (1RECV_F1); rank 1 waits at step 2 (1SEND_F0) for rank 0 to run "
                          "step 4 (2RECV_F0)"));
}

TEST(CheckDeadlock, ReportsTwoRanksThatSendGradientsToEachOther) {
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 "
                    "2SEND_F1 2RECV_B0 2B0 2SEND_B0 2RECV_B1 2B1 2SEND_B1 0RECV_B0 0B0 "
                    "0RECV_B1 0B1\n"
                    "1: 1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3RECV_F1 3F0 "
                    "3B0 3SEND_B0 3F1 3B1 3SEND_B1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 "
                    "1SEND_B1\n"),
      ElementsAre("rank 0, step 12 (2SEND_B0): deadlock under rendezvous (buffered sends "
                  "would complete): rank 0 waits at step 12 (2SEND_B0) for rank 1 to run "
                  "step 14 (1RECV_B0); rank 1 waits at step 13 (3SEND_B1) for rank 0 to run "
                  "step 13 (2RECV_B1)"));
}

TEST(CheckDeadlock, LeavesTheRestOfSuchAScheduleAlone) {
  EXPECT_THAT(
      violations_of(kBothSendActivations, {.rules = RuleSet::all().without({Rule::Deadlock})}),
      IsEmpty());
}

TEST(CheckDeadlock, AcceptsReceivesPostedBeforeTheSends) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1\n"
                            "1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n"),
              IsEmpty());
}

TEST(CheckDeadlock, FollowsACycleOfThreeRanks) {
  EXPECT_THAT(violations_of("0: 0F0 3F0 0F1 3F1 3B0 0B0 3B1 0B1\n"
                            "1: 1F1 1F0 4F0 4F1 4B0 1B0 4B1 1B1\n"
                            "2: 2F0 2F1 5F0 5F1 5B0 2B0 5B1 2B1\n"),
              ElementsAre("rank 0, step 1 (3F0): deadlock in any transport: rank 0 waits at step 1 "
                          "(3F0) for rank 2 to run step 0 (2F0); rank 2 waits at step 0 (2F0) for "
                          "rank 1 to run step 1 (1F0); rank 1 waits at step 0 (1F1) for rank 0 to "
                          "run step 2 (0F1)"));
}

// Ranks 0 to 2 wait in a circle, and so do ranks 3 and 4.
TEST(CheckDeadlock, ExplainsTheSmallestCycle) {
  EXPECT_THAT(violations_of("0: 5F0 2F0 5F1 2F1 5B0 2B0 5B1 2B1\n"
                            "1: 3F0 6F0 3F1 6F1 6B0 3B0 6B1 3B1\n"
                            "2: 4F0 7F0 4F1 7F1 7B0 4B0 7B1 4B1\n"
                            "3: 0F0 0B0 0F1 0B1\n"
                            "4: 1F0 1F1 1B0 1B1\n"),
              ElementsAre("rank 3, step 1 (0B0): deadlock in any transport: rank 3 waits at step 1 "
                          "(0B0) for rank 4 to run step 2 (1B0); rank 4 waits at step 1 (1F1) for "
                          "rank 3 to run step 2 (0F1)"));
}

TEST(CheckDeadlock, NamesOnlyTheRanksOfTheCycle) {
  EXPECT_THAT(violations_of("0: 0F0 0B0 0F1 0B1\n"
                            "1: 1F0 1F1 1B0 1B1\n"
                            "2: 2F0 2F1 2B0 2B1\n"),
              ElementsAre("rank 0, step 1 (0B0): deadlock in any transport: rank 0 waits at step 1 "
                          "(0B0) for rank 1 to run step 2 (1B0); rank 1 waits at step 1 (1F1) for "
                          "rank 0 to run step 2 (0F1)"));
}

TEST(CheckDeadlock, WaitsForBothPartsOfAContainer) {
  EXPECT_THAT(violations_of("0: 0F0 3F0 3B0 0B0 0F1 3F1 3B1 0B1\n"
                            "1: 1F0 2F0 2B0 (1F1;1B0)OVERLAP_F_B 2F1 2B1 1B1\n"),
              ElementsAre("rank 0, step 3 (0B0): deadlock in any transport: rank 0 waits at step 3 "
                          "(0B0) for rank 1 to run step 3 ((1F1;1B0)OVERLAP_F_B); rank 1 waits at "
                          "step 3 ((1F1;1B0)OVERLAP_F_B) for rank 0 to run step 4 (0F1)"));
}

// While communication is not there yet, values are everywhere at once.
TEST(CheckDeadlock, CanBeAskedBeforeThereAreSends) {
  const CheckOptions options = {.rules = {Rule::Deadlock}};
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0B0 0RESHARD\n1: 1F0 1B0\n", options), IsEmpty());
  EXPECT_THAT(violations_of("0: 0UNSHARD 0F0 0B0 0F1 0B1 0RESHARD\n1: 1F0 1F1 1B0 1B1\n", options),
              ElementsAre(::testing::HasSubstr("deadlock in any transport")));
}

}  // namespace
}  // namespace penstock::testing
