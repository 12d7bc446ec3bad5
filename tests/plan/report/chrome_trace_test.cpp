#include "penstock/plan/report/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/report/perfetto_import.h"
#include "tests/plan/report/sample_entries.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::make_entry;
using testing::PerfettoImport;
using testing::sample_entries;

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

json slice_named(const json& trace, const std::string& name) {
  for (const json& event : events_of(trace, "X")) {
    if (event.at("name") == name) return event;
  }
  return nullptr;
}

TEST(ChromeTrace, HasOneSlicePerActionAndARowPerRank) {
  const ReportEntry entry = make_entry("ZBVZeroBubble", {.num_ranks = 2, .num_microbatches = 3},
                                       CostModel::uniform({.hop = Duration(1500)}));
  const json trace = json::parse(write_chrome_trace(entry));
  EXPECT_EQ(events_of(trace, "X").size(), num_actions(entry.program));
  std::set<std::string> names;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_name") names.insert(event.at("args").at("name"));
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"rank 0", "rank 0 sends", "rank 0 receives",
                                              "rank 0 parameters", "rank 1"}));
}

TEST(ChromeTrace, SlicesTellWhatTheyWaitedFor) {
  const ReportEntry entry = make_entry("GPipe", {.num_ranks = 2, .num_microbatches = 1},
                                       CostModel::uniform({.hop = Duration(500)}));
  const json slice = slice_named(json::parse(write_chrome_trace(entry)), "1F0");
  EXPECT_EQ(slice.at("ts"), 1.5);
  EXPECT_EQ(slice.at("dur"), 1);
  EXPECT_EQ(slice.at("cat"), "computation");
  EXPECT_EQ(slice.at("args"), json::parse(R"({"kind": "F", "stage": 1, "microbatch": 0,
      "waited_ms": 0.0015, "waited_for": "0F0 on rank 0", "wait_cause": "warm-up, transfer"})"));
}

TEST(ChromeTrace, IsTakenByPerfettoWithoutAFailure) {
  for (const ReportEntry& entry : sample_entries()) {
    const PerfettoImport import(json::parse(write_chrome_trace(entry)));
    EXPECT_THAT(import.failures(), ::testing::IsEmpty()) << entry.name;
    EXPECT_EQ(import.slices().size(), num_actions(entry.program)) << entry.name;
    std::set<std::int64_t> rows;
    for (const auto& slice : import.slices())
      rows.insert(slice.event.at("tid").get<std::int64_t>());
    for (const std::int64_t row : rows) EXPECT_TRUE(import.thread_names().contains(row)) << row;
  }
}

TEST(ChromeTrace, ArrowsLeadFromEverySendToItsReceive) {
  for (const ReportEntry& entry : sample_entries()) {
    const PerfettoImport import(json::parse(write_chrome_trace(entry)));
    std::set<std::size_t> reached;
    for (const auto& flow : import.flows()) {
      const json& from = import.slices()[flow.from].event.at("args");
      const json& to = import.slices()[flow.to].event.at("args");
      const bool is_forward = from.at("kind") == "SEND_F";
      ASSERT_EQ(from.at("kind"), is_forward ? "SEND_F" : "SEND_B");
      EXPECT_EQ(to.at("kind"), is_forward ? "RECV_F" : "RECV_B");
      EXPECT_EQ(to.at("microbatch"), from.at("microbatch"));
      EXPECT_EQ(to.at("stage"), from.at("stage").get<int>() + (is_forward ? 1 : -1));
      EXPECT_LE(import.slices()[flow.from].begin, import.slices()[flow.to].begin);
      EXPECT_TRUE(reached.insert(flow.to).second);
    }
    const auto num_receives = std::count_if(
        import.slices().begin(), import.slices().end(), [](const PerfettoImport::Slice& slice) {
          return slice.event.at("args").at("kind").get<std::string>().starts_with("RECV");
        });
    EXPECT_EQ(static_cast<std::ptrdiff_t>(reached.size()), num_receives) << entry.name;
  }
}

// The check above means something only if it can fail.
TEST(ChromeTrace, PerfettoRulesFindWhatIsWrong) {
  const auto failures_of = [](const std::string& events) {
    const PerfettoImport import(json::parse("{\"traceEvents\": [" + events + "]}"));
    return import.failures().empty() ? "" : import.failures().front().substr(0, 7);
  };
  const std::string slice = R"({"ph": "X", "pid": 1, "tid": 2, "ts": 0, "dur": 2, "name": "a"})";
  EXPECT_EQ(failures_of(slice), "");
  EXPECT_EQ(failures_of(slice + R"(, {"ph": "X", "pid": 1, "tid": 2, "ts": 1, "dur": 2})"),
            "overlap");
  EXPECT_EQ(failures_of(R"({"ph": "X", "pid": 1, "tid": 2, "dur": 2})"), "no time");
  EXPECT_EQ(failures_of(R"({"ph": "X", "pid": 1, "tid": -2, "ts": 0, "dur": 2})"), "no row:");
  EXPECT_EQ(failures_of(slice + R"(, {"ph": "f", "pid": 1, "tid": 2, "ts": 1, "id": 7, "cat": "c",
                                      "name": "n", "bp": "e"})"),
            "end wit");
}

TEST(ChromeTrace, IsWrittenInPieces) {
  const ReportEntry entry =
      make_entry("1F1B", {.num_ranks = 8, .num_microbatches = 64}, CostModel::uniform());
  std::string text;
  std::size_t longest = 0;
  write_chrome_trace(entry, [&](std::string_view piece) {
    longest = std::max(longest, piece.size());
    text += piece;
  });
  EXPECT_LT(longest, std::size_t{1} << 17);
  EXPECT_EQ(text, write_chrome_trace(entry));
  EXPECT_EQ(json::parse(text).at("otherData").at("schedule"), "1F1B");
}

TEST(ChromeTrace, EscapesTheName) {
  ReportEntry entry =
      make_entry("GPipe", {.num_ranks = 1, .num_microbatches = 1}, CostModel::uniform());
  entry.name = "a\"b\\c\n</script>";
  const json trace = json::parse(write_chrome_trace(entry));
  EXPECT_EQ(trace.at("otherData").at("schedule"), entry.name);
}

}  // namespace
}  // namespace penstock
