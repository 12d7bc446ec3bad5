#include "penstock/plan/report/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/report/sample_entries.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::make_entry;
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

std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
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

// Perfetto needs slices of one row to follow each other or to nest, and sorts by time.
TEST(ChromeTrace, SlicesOfARowFollowEachOtherOrNest) {
  for (const ReportEntry& entry : sample_entries()) {
    const json trace = json::parse(write_chrome_trace(entry));
    std::map<int, std::vector<json>> rows;
    for (const json& event : events_of(trace, "X")) rows[event.at("tid")].push_back(event);
    for (auto& [row, slices] : rows) {
      std::stable_sort(slices.begin(), slices.end(), [](const json& left, const json& right) {
        return nanoseconds(left.at("ts")) < nanoseconds(right.at("ts"));
      });
      std::int64_t open_until = 0;
      for (const json& slice : slices) {
        const std::int64_t begin = nanoseconds(slice.at("ts"));
        const std::int64_t end = begin + nanoseconds(slice.at("dur"));
        ASSERT_TRUE(begin >= open_until || end <= open_until) << entry.name << slice.dump();
        open_until = std::max(open_until, end);
      }
    }
  }
}

TEST(ChromeTrace, ArrowsLeadFromEverySendToItsReceive) {
  for (const ReportEntry& entry : sample_entries()) {
    const json trace = json::parse(write_chrome_trace(entry));
    std::map<int, json> starts;
    std::size_t num_ends = 0;
    json last_slice;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") last_slice = event;
      if (event.at("ph") != "s" && event.at("ph") != "f") continue;
      // An arrow is bound to the slice that was written right before it.
      ASSERT_EQ(event.at("tid"), last_slice.at("tid")) << event.dump();
      ASSERT_EQ(event.at("ts"), last_slice.at("ts")) << event.dump();
      if (event.at("ph") == "s") {
        ASSERT_TRUE(starts.emplace(event.at("id"), last_slice).second) << event.dump();
        continue;
      }
      ++num_ends;
      ASSERT_EQ(event.at("bp"), "e");
      const json& send = starts.at(event.at("id"));
      EXPECT_EQ(send.at("args").at("microbatch"), last_slice.at("args").at("microbatch"));
      EXPECT_LE(nanoseconds(send.at("ts")), nanoseconds(event.at("ts")));
    }
    EXPECT_EQ(num_ends, starts.size());
  }
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
