#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckCommunication, AcceptsOneSendAndOneReceivePerValue) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                            "1: 1RECV_F0 1F0 1B0 1SEND_B0\n"),
              IsEmpty());
}

// A lowered schedule of the reference's tests: sends and receives in groups, no REDUCE_GRAD.
TEST(CheckCommunication, AcceptsGroupsOfSendsAndReceives) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1 0B0 0B1\n"
                            "1: 1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1 1SEND_B0 1SEND_B1\n"),
              IsEmpty());
}

TEST(CheckCommunication, ReportsAReceiveWithoutItsSend) {
  EXPECT_THAT(
      violations_of("0: 0F0 0RECV_B0 0B0\n"
                    "1: 1RECV_F0 1F0 1B0 1SEND_B0\n"),
      ElementsAre("rank 1, step 0 (1RECV_F0): rank 0 never sends it (0SEND_F0 is missing)"));
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                    "1: 1RECV_F0 1F0 1B0\n"),
      ElementsAre("rank 0, step 2 (0RECV_B0): rank 1 never sends it (1SEND_B0 is missing)"));
}

TEST(CheckCommunication, ReportsASendWithoutItsReceive) {
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                    "1: 1F0 1B0 1SEND_B0\n"),
      ElementsAre("rank 0, step 1 (0SEND_F0): rank 1 never receives it (1RECV_F0 is missing)"));
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0B0\n"
                    "1: 1RECV_F0 1F0 1I0 1SEND_B0 1W0\n"),
      ElementsAre("rank 1, step 3 (1SEND_B0): rank 0 never receives it (0RECV_B0 is missing)"));
}

TEST(CheckCommunication, ReportsAValueThatIsNeverMoved) {
  EXPECT_THAT(
      violations_of("0: 0F0 0RECV_B0 0B0\n"
                    "1: 1F0 1B0 1SEND_B0\n"),
      ElementsAre("rank 0, step 0 (0F0): its result is never sent (0SEND_F0 is missing)",
                  "rank 1, step 0 (1F0): its input is never received (1RECV_F0 is missing)"));
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0B0\n"
                    "1: 1RECV_F0 1F0 1B0\n"),
      ElementsAre("rank 1, step 2 (1B0): its result is never sent (1SEND_B0 is missing)",
                  "rank 0, step 2 (0B0): its input is never received (0RECV_B0 is missing)"));
}

TEST(CheckCommunication, ReportsAValueThatNobodyMakesOrUses) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0RECV_B0\n"
                            "1: 1RECV_F0 1F0 1SEND_B0\n"),
              ElementsAre("rank 1, step 2 (1SEND_B0): nothing computes what it sends",
                          "rank 0, step 2 (0RECV_B0): nothing uses what it receives"));
}

TEST(CheckCommunication, ReportsDuplicates) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0SEND_F0 0RECV_B0 0B0\n"
                            "1: 1RECV_F0 1F0 1RECV_F0 1B0 1SEND_B0\n"),
              ElementsAre("rank 0, step 2 (0SEND_F0): 0SEND_F0 runs twice, first at step 1",
                          "rank 1, step 2 (1RECV_F0): 1RECV_F0 runs twice, first at step 0"));
}

TEST(CheckCommunication, ReportsASendBeforeItsValue) {
  EXPECT_THAT(
      violations_of("0: 0SEND_F0 0F0 0RECV_B0 0B0\n"
                    "1: 1RECV_F0 1F0 1B0 1SEND_B0\n"),
      ElementsAre("rank 0, step 0 (0SEND_F0): sends before its value is computed, at step 1"));
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                    "1: 1RECV_F0 1F0 1SEND_B0 1I0 1W0\n"),
      ElementsAre("rank 1, step 2 (1SEND_B0): sends before its value is computed, at step 3"));
}

TEST(CheckCommunication, ReportsAnActionBeforeItsInput) {
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                    "1: 1F0 1RECV_F0 1B0 1SEND_B0\n"),
      ElementsAre("rank 1, step 0 (1F0): runs before its input is received, at step 1",
                  "rank 0, step 1 (0SEND_F0): deadlock under rendezvous (buffered sends would "
                  "complete): rank 0 waits at step 1 (0SEND_F0) for rank 1 to run step 1 "
                  "(1RECV_F0); rank 1 waits at step 0 (1F0) for rank 0 to run step 1 (0SEND_F0)"));
}

// The k-th receive of a channel takes its k-th message, whatever the two are called.
TEST(CheckCommunication, ReportsReceivesInAnotherOrderThanTheirSends) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
                            "1: 1RECV_F1 1RECV_F0 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n"),
              ElementsAre("rank 1, step 1 (1RECV_F0): out of order: rank 0 sends this at step 1, "
                          "before 0SEND_F1 at step 3, which this rank receives first"));
}

TEST(CheckCommunication, LetsChannelsOvertakeEachOther) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0RECV_B0 0B0\n"
                            "1: 1RECV_B0 1RECV_F0 1F0 1SEND_F0 1B0 1SEND_B0\n"
                            "2: 2RECV_F0 2F0 2B0 2SEND_B0\n"),
              IsEmpty());
}

TEST(CheckCommunication, ReportsATransferWithinARank) {
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 1RECV_F0 1F0 1B0 1SEND_B0 0RECV_B0 0B0"),
      ElementsAre(
          "rank 0, step 1 (0SEND_F0): both stages are on this rank: there is nothing to transfer",
          "rank 0, step 2 (1RECV_F0): both stages are on this rank: there is nothing to transfer",
          "rank 0, step 5 (1SEND_B0): both stages are on this rank: there is nothing to transfer",
          "rank 0, step 6 (0RECV_B0): both stages are on this rank: there is nothing to transfer"));
}

TEST(CheckCommunication, ReportsTransfersOffTheEnds) {
  EXPECT_THAT(violations_of("0: 0RECV_F0 0F0 0SEND_F0 0RECV_B0 0B0 0SEND_B0\n"
                            "1: 1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0\n"),
              ElementsAre("rank 0, step 5 (0SEND_B0): there is no stage at the other end",
                          "rank 0, step 0 (0RECV_F0): there is no stage at the other end",
                          "rank 1, step 2 (1SEND_F0): there is no stage at the other end",
                          "rank 1, step 3 (1RECV_B0): there is no stage at the other end"));
}

TEST(CheckCommunication, ReportsACommunicationInsideOfAContainer) {
  EXPECT_THAT(violations_of("0: 0F0 0F1 (0SEND_F0;0SEND_F1)OVERLAP_F_B 0RECV_B0 0B0 0RECV_B1 0B1\n"
                            "1: 1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n"),
              ElementsAre("rank 0, step 2 ((0SEND_F0;0SEND_F1)OVERLAP_F_B): a container holds "
                          "computing actions only, not 0SEND_F0",
                          "rank 0, step 2 ((0SEND_F0;0SEND_F1)OVERLAP_F_B): a container holds "
                          "computing actions only, not 0SEND_F1"));
}

}  // namespace
}  // namespace penstock::testing
