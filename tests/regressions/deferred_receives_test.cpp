#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;

// torch.distributed.pipelining can move each receive next to its consumer; messages have no tag, so
// a gradient and an activation change places and every gradient is wrong, without an error.
TEST(DeferredReceives, DoNotSwapMessagesUnnoticed) {
  EXPECT_THAT(
      violations_of("0: 0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 0RECV_B0 0B0 3RECV_F1 "
                    "3F1 3B1 3SEND_B1 0RECV_B1 0B1\n"
                    "1: 1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2F1 2RECV_B0 2SEND_F1 2B0 1B0 "
                    "1SEND_B0 2RECV_B1 2B1 1B1 1SEND_B1\n"),
      ElementsAre("rank 0, step 10 (3RECV_F1): out of order: rank 1 sends this at step 8, before "
                  "1SEND_B0 at step 11, which this rank receives first",
                  "rank 0, step 9 (0B0): deadlock under rendezvous (buffered sends would "
                  "complete): rank 0 waits at step 9 (0B0) for rank 1 to run step 11 (1SEND_B0); "
                  "rank 1 waits at step 8 (2SEND_F1) for rank 0 to run step 10 (3RECV_F1)"));
}

// The same pass leaves both ranks sending before they receive: a hang as soon as a send waits for
// its receive, which small messages hide. This is its smallest case.
TEST(DeferredReceives, DoNotHangUnderRendezvous) {
  EXPECT_THAT(violations_of("0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
                            "1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n"),
              ElementsAre("rank 0, step 3 (0SEND_F1): deadlock under rendezvous (buffered sends "
                          "would complete): rank 0 waits at step 3 (0SEND_F1) for rank 1 to run "
                          "step 4 (1RECV_F1); rank 1 waits at step 3 (1SEND_B0) for rank 0 to run "
                          "step 4 (0RECV_B0)"));
}

}  // namespace
}  // namespace penstock::testing
