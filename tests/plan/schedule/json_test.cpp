#include "penstock/plan/schedule/json.h"

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

Schedule from_json(std::string_view text) {
  return read_json(text, "test.json");
}

// A document with `ranks` as the value of its last member, which begins on line 4, column 12.
std::string document(std::string_view ranks) {
  return "{\n  \"format\": \"penstock-schedule\",\n  \"version\": 1,\n  \"ranks\": " +
         std::string(ranks) + "\n}\n";
}

void expect_json_failure(std::string_view text, const std::string& message) {
  const auto failure = parse_failure_of([&] { return from_json(text); });
  ASSERT_TRUE(failure) << "accepted, expected: " << message;
  EXPECT_EQ(failure->what(), message);
}

TEST(WriteJson, WritesOneRankPerLine) {
  EXPECT_EQ(write_json(from_csv("0F0,,(0F1;3B0)OVERLAP_F_B\n\n1F0\n")), R"({
  "format": "penstock-schedule",
  "version": 1,
  "form": "compute",
  "num_ranks": 3,
  "num_stages": 4,
  "num_microbatches": 2,
  "placement": [0, 2, null, 0],
  "ranks": [
    ["0F0", "", "(0F1;3B0)OVERLAP_F_B"],
    [],
    ["1F0"]
  ]
}
)");
}

TEST(WriteJson, TellsLoweredSchedulesFromComputeOrders) {
  const std::string text = write_json(from_csv("0UNSHARD,0F0\n"));
  EXPECT_NE(text.find("\"form\": \"lowered\""), std::string::npos);
}

TEST(WriteJson, LeavesOutThePlacementOfAbsurdlyManyStages) {
  const Schedule schedule = from_csv("2000000000F0\n");
  const std::string text = write_json(schedule);
  EXPECT_NE(text.find("\"num_stages\": 2000000001,"), std::string::npos);
  EXPECT_NE(text.find("\"placement\": null,"), std::string::npos);
  EXPECT_EQ(from_json(text), schedule);
}

TEST(ReadJson, NeedsFormatVersionAndRanksOnly) {
  EXPECT_EQ(from_json(document(R"([["0F0", ""], []])")).ranks.size(), 2U);
  expect_json_failure("{}", R"(test.json:1:2: member "format" is missing)");
  expect_json_failure(R"({"format": "penstock-schedule", "ranks": [[]]})",
                      R"(test.json:1:46: member "version" is missing)");
  expect_json_failure(R"({"format": "penstock-schedule", "version": 1})",
                      R"(test.json:1:45: member "ranks" is missing)");
}

TEST(ReadJson, IgnoresMembersItDoesNotKnow) {
  const std::string_view text =
      R"({"num_stages": 99, "notes": {"ranks": [3], "format": {}}, "ranks": [["0F0"]],
          "placement": [[[null, -1, 1e3, true, "x"]]], "version": 1,
          "format": "penstock-schedule"})";
  EXPECT_EQ(from_json(text), from_csv("0F0\n"));
}

TEST(ReadJson, DecodesEscapesInActions) {
  EXPECT_EQ(from_json(document(R"([["\u0030F\u0030"]])")), from_csv("0F0\n"));
}

TEST(ReadJson, SkipsAByteOrderMark) {
  EXPECT_EQ(from_json("\xEF\xBB\xBF" + document(R"([["0F0"]])")), from_csv("0F0\n"));
}

TEST(ReadJson, RejectsOtherFormatsAndVersions) {
  expect_json_failure(R"({"format": "trace"})",
                      R"(test.json:1:12: unknown format "trace"; expected "penstock-schedule")");
  expect_json_failure(R"({"format": [1]})",
                      R"(test.json:1:12: "format" must be "penstock-schedule", found "[")");
  expect_json_failure(R"({"version": 2})", R"(test.json:1:13: "version" must be 1, found "2")");
  expect_json_failure(R"({"version": -1 })", R"(test.json:1:13: "version" must be 1, found "-1")");
  expect_json_failure(R"({"version" :1.0})", R"(test.json:1:13: "version" must be 1, found "1.0")");
  expect_json_failure(R"({"version": "1"})",
                      R"(test.json:1:13: "version" must be 1, found "\"1\"")");
}

TEST(ReadJson, RejectsRanksOfAnotherShape) {
  const std::string outer = "\"ranks\" must be an array with one array per rank, found ";
  expect_json_failure(document("3"), "test.json:4:12: " + outer + R"("3")");
  expect_json_failure(document("{}"), "test.json:4:12: " + outer + R"("{")");
  expect_json_failure(document(R"("0F0")"), "test.json:4:12: " + outer + R"("\"0F0\"")");
  expect_json_failure(document(R"([[], "0F0"])"),
                      R"(test.json:4:17: ranks[1] must be an array of actions, found "\"0F0\"")");
  expect_json_failure(document("[[], {}]"),
                      R"(test.json:4:17: ranks[1] must be an array of actions, found "{")");
  expect_json_failure(document(R"([["0F0", null]])"),
                      R"(test.json:4:21: ranks[0][1] must be the text of an action, found "null")");
  expect_json_failure(document("[[[]]]"),
                      R"(test.json:4:14: ranks[0][0] must be the text of an action, found "[")");
  expect_json_failure(document("[]"), "test.json:5:1: no ranks; \"ranks\" is an empty array");
}

TEST(ReadJson, NamesPlaceRankAndStepOfABadAction) {
  expect_json_failure(document(R"([[],
    ["0F0", "1UNSHARD3"]])"),
                      "test.json:5:22: ranks[1][1]: UNSHARD takes no microbatch, found \"3\" after "
                      "\"1UNSHARD\"");
  expect_json_failure(
      document(R"([["\u0030F"]])"),
      "test.json:4:14: ranks[0][0]: expected a microbatch number after \"0F\", found "
      "nothing");
}

TEST(ReadJson, RejectsAnIdleSlotAmongLoweredActions) {
  expect_json_failure(
      document(R"([["0F0", "", "0SEND_F0"]])"),
      "test.json:4:21: idle slot in a lowered schedule, which has sends, receives or "
      "parameter actions; remove the empty cell");
}

TEST(ReadJson, RejectsAMemberThatOccursTwice) {
  expect_json_failure(R"({"version": 1, "version": 1})",
                      R"(test.json:1:16: member "version" occurs twice)");
  expect_json_failure(R"({"x": 1, "x": 1})", R"(test.json:1:10: member "x" occurs twice)");
}

TEST(ReadJson, RejectsWhatIsNotJson) {
  expect_json_failure(
      "", "test.json:1:1: not JSON: unexpected end of input; expected '[', '{', or a literal");
  expect_json_failure("0F0,0F1\n", "test.json:1:1: expected a JSON object, found \"0F\"");
  expect_json_failure("[]", "test.json:1:1: expected a JSON object, found \"[\"");
  expect_json_failure("{\n  \"format\" 3}",
                      "test.json:2:12: not JSON: unexpected number literal; expected ':'");
  expect_json_failure("{\"x\": nil}", "test.json:1:8: not JSON: invalid literal");
  expect_json_failure(document("[[\"0F0\"]"),
                      "test.json:5:1: not JSON: unexpected '}'; expected ']'");
  expect_json_failure(document("[[\"0F0\xff\"]]"),
                      "test.json:4:18: not JSON: invalid string: ill-formed UTF-8 byte");
  expect_json_failure("{\"x\": 1e999}", "test.json:1:11: not JSON: number out of range");
}

TEST(ReadJson, RejectsTextBehindTheObject) {
  expect_json_failure(document("[[]]") + "{",
                      "test.json:6:1: not JSON: unexpected '{'; expected end of "
                      "input");
  expect_json_failure(document("[[]]") + std::string(1, '\0'),
                      "test.json:6:1: not JSON: zero byte");
}

TEST(ReadJson, AnswersGarbageWithAShortMessage) {
  constexpr std::size_t kManyBytes = 1'000'000;
  for (const std::string_view start : {"", "{\"", "{\"x\": \"", "{\"ranks\": [[\"", "{\"x\": "}) {
    for (const char letter : {'\0', 'a', '0', '-', '"', '\\', '\'', '\xff'}) {
      const std::string garbage = std::string(start) + std::string(kManyBytes, letter);
      const auto failure = parse_failure_of([&] { return from_json(garbage); });
      ASSERT_TRUE(failure);
      EXPECT_LT(failure->problem().size(), 500U);
    }
  }
}

TEST(ReadJson, SurvivesDeepNesting) {
  constexpr std::size_t kDepth = 1'000'000;
  const std::string open(kDepth, '[');
  const std::string close(kDepth, ']');
  expect_json_failure(open, "test.json:1:1: expected a JSON object, found \"[\"");
  expect_json_failure(
      "{\"x\": " + open,
      "test.json:1:1000007: not JSON: unexpected end of input; expected '[', '{', or a literal");
  std::string text = document("[[]]");
  text.insert(1, "\"x\": " + open + close + ",");
  EXPECT_EQ(from_json(text), from_csv("\n"));
}

RC_GTEST_PROP(ReadJson, UndoesWriting, ()) {
  const Schedule schedule = *random_schedule();
  RC_ASSERT(from_json(write_json(schedule)) == schedule);
}

// A file cut short is never taken for a whole one.
RC_GTEST_PROP(ReadJson, RejectsEveryBeginningOfADocument, ()) {
  const std::string text = write_json(*random_schedule());
  const std::size_t length = *rc::gen::inRange<std::size_t>(0, text.size() - 1);
  RC_ASSERT_THROWS_AS(from_json(text.substr(0, length)), ParseError);
}

}  // namespace
}  // namespace penstock
