#include "penstock/run/transport/shared_memory/internal/segment.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "penstock/run/transport/shared_memory/internal/outbox.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

const ChannelShape kShape{.num_entries = 4, .num_blocks = 2, .heap_size = 1U << 16U};

TEST(Outbox, TakesALargerBlockIfThereCanBeNoMore) {
  const OwnSegment segment(1, kShape);
  Outbox outbox(segment, 0);
  ASSERT_TRUE(outbox.find_block(4096));
  const auto large = outbox.find_block(8192);
  ASSERT_TRUE(large);
  EXPECT_FALSE(outbox.find_block(100));
  segment.channel_to(0).is_block_busy[large->number] = 0;  // the receiver gives it back
  const auto found = outbox.find_block(100);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, large->number);
  EXPECT_FALSE(outbox.find_block(100)) << "it is taken";
}

TEST(PeerSegment, SaysWhyItCannotBeOpened) {
  const OwnSegment segment(1, kShape);
  const std::string invitation = segment.invitation();
  const PeerSegment peer(invitation, 0, kShape);
  EXPECT_EQ(peer.control().nonce, segment.control().nonce);
  EXPECT_THAT(message_of([&] { PeerSegment(std::to_string(getpid()) + " 12345 1", 0, kShape); }),
              ::testing::MatchesRegex("cannot open /proc/[0-9]+/fd/12345, the memory of another "
                                      "rank: No such file or directory"));
  EXPECT_THAT(message_of([&] { PeerSegment(invitation, 1, kShape); }),
              ::testing::MatchesRegex("/proc/[0-9]+/fd/[0-9]+, the memory of another rank, has "
                                      "[0-9]+ bytes here, but [0-9]+ are needed"));
}

}  // namespace
}  // namespace penstock
