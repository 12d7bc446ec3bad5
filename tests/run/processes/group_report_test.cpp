#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/run/processes/internal/agreement.h"
#include "penstock/run/processes/internal/rank_position.h"
#include "penstock/run/processes/internal/wait_judge.h"

namespace penstock {
namespace {

using std::chrono::seconds;

const std::vector<std::string> kNames = {"rank 0", "rank 1", "rank 2"};

Schedule program() {
  return lower(make_schedule("1F1B", {.num_ranks = 3, .num_microbatches = 2}), {.sharding = false});
}

// The position of `rank` in front of `action`.
RankPosition at(int rank, const std::string& action, bool is_waiting) {
  const Schedule schedule = program();
  RankPosition position{
      .is_known = true, .is_in_step = true, .is_waiting = is_waiting, .num_steps = 1};
  for (const Action& other : schedule.actions_of(rank)) {
    if (to_string(other) == action) return position;
    ++position.finished;
  }
  ADD_FAILURE() << "rank " << rank << " has no " << action;
  return position;
}

TEST(GroupReport, SaysWhoWaitsForWhom) {
  const std::vector<RankPosition> positions = {at(0, "0B0", true), at(1, "1F1", false), {}};
  EXPECT_EQ(describe_positions(program(), positions, kNames),
            "\n  rank 0 waits at step " + std::to_string(positions[0].finished) +
                " (0B0) for rank 1 to send the gradients of microbatch 0, which has not sent them"
                "\n  rank 1 works on step " +
                std::to_string(positions[1].finished) +
                " (1F1)"
                "\n  rank 2 does not answer: stopped, or cut off");
}

TEST(GroupReport, SaysWhatARankKnowsOfItselfAlone) {
  EXPECT_EQ(describe_alone(program(), 2, at(2, "2F0", true), kNames),
            "waits at step " + std::to_string(at(2, "2F0", true).finished) +
                " (2F0) for rank 1 to send the activations of microbatch 0");
  EXPECT_EQ(describe_alone(program(), 2, {.is_known = true, .num_steps = 4}, kNames),
            "is outside of a step, after 4");
}

TEST(Agreement, SaysHowAVersionDiffers) {
  const Agreement own = make_agreement(program(), {.extent = extent_of(program())}, "gpt");
  EXPECT_EQ(difference(own, parse_agreement(to_text(own))), "");
  Agreement other = own;
  other.version = "99.1";
  other.model = "another one";  // the version explains more
  EXPECT_EQ(difference(own, parse_agreement(to_text(other))),
            "runs Penstock \"99.1\" instead of \"" + own.version + "\"");
  EXPECT_EQ(difference(own, parse_agreement("what?")),
            "runs Penstock \"\" instead of \"" + own.version + "\"");
  EXPECT_FALSE(own.version.empty());
}

TEST(GroupReport, BlamesSilentRanksFirstThenBusyOnes) {
  std::vector<RankPosition> positions = {at(0, "0B0", true), at(1, "1F1", false), {}};
  EXPECT_EQ(blame(program(), positions, kNames), "rank 2 does not answer");
  positions[2] = at(2, "2F0", true);
  EXPECT_EQ(blame(program(), positions, kNames),
            "rank 1 works on step " + std::to_string(positions[1].finished) + " (1F1)");
  positions[1] = at(1, "1F0", true);
  EXPECT_EQ(blame(program(), positions, kNames),
            "every rank waits for another one, or a message was lost");
}

TEST(GroupReport, TellsAMessageThatWasSentFromOneThatWasNot) {
  const std::vector<RankPosition> positions = {at(0, "0B0", true), at(1, "1F0", true),
                                               at(2, "2F0", true)};
  const std::string text = describe_positions(program(), positions, kNames);
  EXPECT_THAT(text,
              ::testing::HasSubstr("(1F0) for rank 0 to send the activations of microbatch 0, "
                                   "which has sent them"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("(2F0) for rank 1 to send the activations of microbatch 0, "
                                   "which has not sent them"));
}

TEST(GroupReport, KnowsThatASendWaitsForItsReceiver) {
  const std::vector<RankPosition> positions = {at(0, "0SEND_F0", true), {}, {}};
  EXPECT_THAT(describe_positions(program(), positions, kNames),
              ::testing::HasSubstr("(0SEND_F0) for rank 1 to take the activations of microbatch 0, "
                                   "which does not answer"));
}

// A rank that has done its list, and waits for `partner` in the exchange that follows.
RankPosition in_exchange(int rank, int partner, bool is_sending) {
  return {.is_known = true,
          .is_in_step = true,
          .is_waiting = true,
          .finished = static_cast<int>(program().actions_of(rank).size()),
          .num_steps = 1,
          .exchange = {.num_messages = 3, .partner = partner, .is_sending = is_sending}};
}

TEST(GroupReport, KnowsWhoWaitsForSharedGradients) {
  const std::vector<RankPosition> positions = {
      in_exchange(0, 2, false), {}, in_exchange(2, 0, true)};
  const std::string text = describe_positions(program(), positions, kNames);
  EXPECT_THAT(text, ::testing::HasSubstr("rank 0 waits at the end of its step for rank 2 to send "
                                         "gradients of parameters that both use"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 2 waits at the end of its step for rank 0 to take "
                                         "gradients of parameters that both use"));
}

// A rank waits for what `partner` tells all others.
RankPosition waiting_for_values(int partner, bool is_sending) {
  RankPosition position = in_exchange(0, partner, is_sending);
  position.exchange.kind = ExchangeKind::Values;
  position.finished = 0;  // as between two steps
  return position;
}

TEST(GroupReport, KnowsWhoWaitsForWhatRanksTellEachOther) {
  const std::vector<RankPosition> positions = {
      waiting_for_values(2, false), waiting_for_values(0, true), {}};
  EXPECT_EQ(describe_positions(program(), positions, kNames),
            "\n  rank 0 waits at the end of a list for rank 2 to send what all ranks tell each "
            "other, which does not answer"
            "\n  rank 1 waits at the end of a list for rank 0 to take what all ranks tell each "
            "other"
            "\n  rank 2 does not answer: stopped, or cut off");
}

TEST(RankPosition, ComesBackFromItsText) {
  for (const RankPosition& position :
       {at(1, "1F1", true), RankPosition{.is_known = true, .has_left = true, .num_steps = 7},
        in_exchange(2, 0, true), waiting_for_values(2, false)}) {
    EXPECT_EQ(parse_position(to_text(position)), position);
    const ToldPosition told{.position = position, .age = seconds(3)};
    EXPECT_EQ(parse_told_position(to_text(told)).position, position);
    EXPECT_EQ(parse_told_position(to_text(told)).age, seconds(3));
  }
  for (const char* text : {"", "1", "a b c d e", "0 1 0 3 1", "0 1 0 -3 1 0 -1 0 0"}) {
    EXPECT_FALSE(parse_position(text).is_known) << text;
    EXPECT_FALSE(parse_told_position(text).position.is_known) << text;
  }
}

TEST(WaitJudge, SeesTheMessagesOfAnExchange) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  RankPosition waiting = in_exchange(0, 2, false);
  judge.look(waiting, start);
  judge.look(waiting, start + seconds(4));
  EXPECT_EQ(judge.stalled_for(start + seconds(4)), seconds(4));
  ++waiting.exchange.num_messages;
  judge.look(waiting, start + seconds(5));
  EXPECT_EQ(judge.stalled_for(start + seconds(6)), seconds(1));
}

// What a judge of `rank` sees at a time, told some time after the moves.
void look_along(WaitJudge& judge, int rank, const std::vector<RankPosition>& positions,
                WaitJudge::Time now, std::chrono::milliseconds age = {}) {
  judge.look(positions[static_cast<std::size_t>(rank)], now);
  judge.look_along_waits(
      program(), rank,
      [&](int peer) {
        return ToldPosition{positions[static_cast<std::size_t>(peer)], age};
      },
      now);
}

TEST(WaitJudge, CountsFromTheLastMoveOfAnybodyConcerned) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  std::vector<RankPosition> positions = {at(0, "0B0", true), at(1, "1F0", false), {}};
  look_along(judge, 0, positions, start);
  look_along(judge, 0, positions, start + seconds(1));
  EXPECT_EQ(judge.stalled_for(start + seconds(5)), seconds(5));
  positions[1] = at(1, "1F1", false);  // it has moved
  look_along(judge, 0, positions, start + seconds(6));
  look_along(judge, 0, positions, start + seconds(9));
  EXPECT_EQ(judge.stalled_for(start + seconds(9)), seconds(3));
  judge.look(at(0, "0B1", true), start + seconds(10));
  EXPECT_EQ(judge.stalled_for(start + seconds(11)), seconds(1));
  judge.look(at(0, "0B1", false), start + seconds(12));
  EXPECT_EQ(judge.stalled_for(start + seconds(20)), seconds(0));
}

TEST(WaitJudge, CountsFromTheMoveNotFromWhenItWasTold) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  std::vector<RankPosition> positions = {at(0, "0B0", true), at(1, "1F0", false), {}};
  look_along(judge, 0, positions, start);
  positions[1] = at(1, "1F1", false);
  look_along(judge, 0, positions, start + seconds(6), seconds(2));
  EXPECT_EQ(judge.stalled_for(start + seconds(6)), seconds(2));
}

TEST(WaitJudge, FollowsTheWaitsOfThoseThatWaitThemselves) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  std::vector<RankPosition> positions = {at(0, "0F0", false), at(1, "1F0", true),
                                         at(2, "2F0", true)};
  look_along(judge, 2, positions, start);
  EXPECT_EQ(judge.stalled_for(start + seconds(4)), seconds(4));
  positions[0] = at(0, "0SEND_F0", false);  // for which rank 1 waits, for which rank 2 does
  look_along(judge, 2, positions, start + seconds(4));
  EXPECT_EQ(judge.stalled_for(start + seconds(5)), seconds(1));
}

// A rank may be stopped while it waits. Those before it go on with what does not need it.
TEST(WaitJudge, DoesNotFollowAWaitForWhatWasSent) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  std::vector<RankPosition> positions = {at(0, "0F1", false), at(1, "1F0", true),
                                         at(2, "2F0", true)};
  look_along(judge, 2, positions, start);
  positions[0] = at(0, "0B0", false);
  look_along(judge, 2, positions, start + seconds(4));
  EXPECT_EQ(judge.stalled_for(start + seconds(5)), seconds(5));
}

TEST(WaitJudge, LooksAtEverybodyIfARankWaitsInAnotherStep) {
  WaitJudge judge;
  const WaitJudge::Time start{};
  std::vector<RankPosition> positions = {at(0, "0F1", false), at(1, "1B1", true),
                                         at(2, "2F0", true)};
  positions[2].num_steps = 2;
  look_along(judge, 2, positions, start);
  positions[0] = at(0, "0B0", false);
  look_along(judge, 2, positions, start + seconds(4));
  EXPECT_EQ(judge.stalled_for(start + seconds(5)), seconds(1));
}

}  // namespace
}  // namespace penstock
