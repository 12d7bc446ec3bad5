#include "penstock/plan/schedule/csv.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "tests/plan/schedule/from_csv.h"
#include "tests/plan/schedule/parse_failure_of.h"
#include "tests/plan/schedule/random_schedule.h"

namespace penstock {
namespace {

// Interleaved 1F1B on 2 ranks, 2 stages per rank, 2 microbatches.
constexpr std::string_view kInterleaved =
    "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1\n"
    ",1F0,1F1,,3F0,3B0,3F1,3B1,,1B0,,1B1\n";

std::string with_crlf(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\n') result += '\r';
    result += letter;
  }
  return result;
}

void expect_csv_failure(std::string_view text, const std::string& message) {
  const auto failure = parse_failure_of([&] { return from_csv(text); });
  ASSERT_TRUE(failure) << "accepted, expected: " << message;
  EXPECT_EQ(failure->what(), message);
}

TEST(ReadCsv, ReadsOneRankPerLine) {
  const Schedule schedule = from_csv(kInterleaved);
  ASSERT_EQ(schedule.num_ranks(), 2);
  EXPECT_EQ(schedule.actions_of(0).size(), 14U);
  EXPECT_EQ(schedule.actions_of(1).size(), 12U);
  EXPECT_EQ(to_string(schedule.actions_of(0)[13]), "0B1");
  EXPECT_EQ(schedule.actions_of(1)[0], Action{});
  EXPECT_EQ(to_string(schedule.actions_of(1)[1]), "1F0");
}

TEST(WriteCsv, WritesTheBytesOfTheReference) {
  const Schedule schedule = from_csv(kInterleaved);
  EXPECT_EQ(write_csv(schedule), kInterleaved);
  EXPECT_EQ(write_csv(schedule, LineEnd::CrLf), with_crlf(kInterleaved));
}

TEST(ReadCsv, TakesEitherLineEnd) {
  EXPECT_EQ(from_csv(with_crlf(kInterleaved)), from_csv(kInterleaved));
  EXPECT_EQ(from_csv("0F0\r\n1F0\n"), from_csv("0F0\n1F0\n"));
}

TEST(ReadCsv, TakesAFileWithoutFinalLineEnd) {
  EXPECT_EQ(from_csv("0F0\n1F0"), from_csv("0F0\n1F0\n"));
  EXPECT_EQ(from_csv("0F0,"), from_csv("0F0,\n"));
}

TEST(ReadCsv, SkipsAByteOrderMarkAtTheStartOnly) {
  EXPECT_EQ(from_csv("\xEF\xBB\xBF"
                     "0F0\n"),
            from_csv("0F0\n"));
  expect_csv_failure(
      "\xEF\xBB\xBF"
      "0X0\n",
      "test.csv:1:2: unknown action \"0X0\"; expected <stage><kind><microbatch>, for "
      "example 2F0");
  expect_csv_failure(
      "0F0\n\xEF\xBB\xBF"
      "0F0\n",
      "test.csv:2:1: unknown action \"\\xef\\xbb\\xbf0F0\"; expected "
      "<stage><kind><microbatch>, for example 2F0");
}

TEST(ReadCsv, IgnoresBlanksAroundCells) {
  EXPECT_EQ(from_csv(" 0F0 ,\t1F0, ,(0F0; 1B0)OVERLAP_F_B\t\n"),
            from_csv("0F0,1F0,,(0F0;1B0)OVERLAP_F_B\n"));
}

TEST(ReadCsv, TakesAnEmptyLineForARankWithNothingToDo) {
  const Schedule schedule = from_csv("0F0\n\n1F0\n");
  ASSERT_EQ(schedule.num_ranks(), 3);
  EXPECT_TRUE(schedule.actions_of(1).empty());
  EXPECT_EQ(from_csv("\n").num_ranks(), 1);
  EXPECT_EQ(from_csv("0F0\n\n").num_ranks(), 2);
  EXPECT_EQ(from_csv("\r\n\r\n").num_ranks(), 2);
}

TEST(ReadCsv, TellsAnIdleSlotFromNothing) {
  const Schedule idle = {.ranks = {{Action{}}}};
  const Schedule nothing = {.ranks = {{}}};
  EXPECT_EQ(write_csv(idle), "\"\"\n");
  EXPECT_EQ(write_csv(idle, LineEnd::CrLf), "\"\"\r\n");
  EXPECT_EQ(write_csv(nothing), "\n");
  EXPECT_EQ(from_csv("\"\"\n"), idle);
  EXPECT_EQ(from_csv("\n"), nothing);
  EXPECT_EQ(from_csv(" \n"), idle);
  EXPECT_EQ(from_csv("0F0, \"\",0F1\n"), from_csv("0F0,,0F1\n"));
}

TEST(ReadCsv, NamesFileLineAndColumnOfABadCell) {
  expect_csv_failure(
      "0F0\n1F0\n2F0,  ,2F1, 2X0,3B1\n",
      "test.csv:3:14: unknown action \"2X0\"; expected <stage><kind><microbatch>, for "
      "example 2F0");
  expect_csv_failure("0F0\r\n1F0,2BW0\r\n",
                     "test.csv:2:7: expected a microbatch number after \"2B\", found \"W0\"");
  expect_csv_failure("0F0,1F",
                     "test.csv:1:7: expected a microbatch number after \"1F\", found nothing");
  expect_csv_failure("0F0\n0F0,(0F1;2F)OVERLAP_F_B,0F3\n",
                     "test.csv:2:12: expected a microbatch number after \"2F\", found nothing");
  expect_csv_failure("0F0;0F1\n",
                     "test.csv:1:4: unexpected \";0F1\" after \"0F0\"; a cell holds one action");
  expect_csv_failure(
      "0F0,\"0F1\"\n",
      "test.csv:1:5: quoted cell \"\\\"0F1\\\"\"; actions are written without quotes");
}

TEST(ReadCsv, RejectsACarriageReturnWithinALine) {
  const std::string problem = "carriage return within a line; lines end in LF or CR LF";
  expect_csv_failure("0F0\r1F0\n", "test.csv:1:4: " + problem);
  expect_csv_failure("0F0\n1F0\r", "test.csv:2:4: " + problem);
  expect_csv_failure("0F0\r\r\n", "test.csv:1:4: " + problem);
  expect_csv_failure("0F0,\r,1F0\n", "test.csv:1:5: " + problem);
}

TEST(ReadCsv, RejectsAnIdleSlotAmongLoweredActions) {
  const std::string problem =
      "idle slot in a lowered schedule, which has sends, receives or parameter actions; remove "
      "the empty cell";
  expect_csv_failure("0UNSHARD,,0F0\n", "test.csv:1:10: " + problem);
  expect_csv_failure("0F0,0SEND_F0,\n", "test.csv:1:14: " + problem);
  expect_csv_failure("0F0,0SEND_F0,", "test.csv:1:14: " + problem);
  expect_csv_failure("0F0\r\n0F0, ,\r\n1RECV_F0\r\n", "test.csv:2:6: " + problem);
  expect_csv_failure("0UNSHARD\n\"\"\n", "test.csv:2:1: " + problem);
  EXPECT_NO_THROW(from_csv("0UNSHARD\n\n1F0\n"));
}

TEST(ReadCsv, RejectsAnEmptyFile) {
  const std::string message = "test.csv:1:1: no ranks; expected one line of actions per rank";
  expect_csv_failure("", message);
  expect_csv_failure("\xEF\xBB\xBF", message);
}

TEST(ReadCsv, AnswersGarbageWithAShortMessage) {
  constexpr std::size_t kManyBytes = 100'000'000;
  for (const char letter : {'\0', 'a', '0', '(', '"', '\r', '\xff'}) {
    const std::string garbage(kManyBytes, letter);
    const auto failure = parse_failure_of([&] { return from_csv(garbage); });
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->line(), 1);
    EXPECT_LT(failure->problem().size(), 500U);
  }
}

RC_GTEST_PROP(ReadCsv, UndoesWriting, ()) {
  const Schedule schedule = *random_schedule();
  RC_ASSERT(from_csv(write_csv(schedule)) == schedule);
  RC_ASSERT(from_csv(write_csv(schedule, LineEnd::CrLf)) == schedule);
}

}  // namespace
}  // namespace penstock
