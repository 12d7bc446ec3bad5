#include "penstock/plan/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/csv.h"
#include "tests/plan/report/sample_entries.h"
#include "tests/support/num_parts.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::make_entry;
using ::testing::Not;

ReportEntry small_entry(const std::string& name = "1F1B") {
  return make_entry(name, {.num_ranks = 2, .num_microbatches = 4}, CostModel::uniform());
}

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"report-data\">";
  const std::size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(HtmlReport, TitleCarriesTheParameters) {
  const std::vector<ReportEntry> one = {small_entry()};
  EXPECT_THAT(write_html_report(one),
              HasSubstr("<title>1F1B: 2 ranks, 2 stages, 4 microbatches</title>"));
  const std::vector<ReportEntry> two = {small_entry("GPipe"), small_entry("ZBVZeroBubble")};
  EXPECT_THAT(write_html_report(two),
              HasSubstr("<h1>GPipe, ZBVZeroBubble: 2 ranks, 4 microbatches</h1>"));
}

TEST(HtmlReport, EmbedsProgramsCostsAndFigures) {
  const std::vector<ReportEntry> entries = {small_entry("GPipe"), small_entry("DualPipeV")};
  const nlohmann::json data = data_of(write_html_report(entries));
  ASSERT_EQ(data.at("entries").size(), 2U);
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const nlohmann::json& entry = data.at("entries").at(index);
    EXPECT_EQ(read_csv(entry.at("program").get<std::string>(), ""), entries[index].program);
    EXPECT_EQ(entry.at("figures").at("makespan"), entries[index].timeline.makespan.count());
    EXPECT_EQ(entry.at("figures").at("span_bubble"), entries[index].timeline.span_bubble);
    EXPECT_EQ(entry.at("figures").at("idle").size(), 2U);
    EXPECT_EQ(entry.at("costs").at("stages").size(), 1U);
  }
}

TEST(HtmlReport, EmbedsTheTimesOfAMeasuredRun) {
  const ReportEntry simulated = small_entry();
  const std::vector<ReportEntry> entries = {
      simulated, testing::make_measured_sample("run", simulated.program, simulated.costs)};
  const nlohmann::json data = data_of(write_html_report(entries));
  EXPECT_FALSE(data.at("entries").at(0).contains("measured_times"));
  const nlohmann::json& times = data.at("entries").at(1).at("measured_times");
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const std::vector<ActionTime>& expected = entries[1].timeline.times[rank];
    ASSERT_EQ(times[rank].size(), 2 * expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_EQ(times[rank][2 * step], expected[step].start.count());
      EXPECT_EQ(times[rank][2 * step + 1], expected[step].end.count());
    }
  }
}

TEST(HtmlReport, RefusesTheTimelineOfAnotherProgram) {
  const ReportEntry one = small_entry("1F1B");
  const ReportEntry other = small_entry("ZBVZeroBubble");
  EXPECT_THROW(make_measured_entry("run", one.program, one.costs, other.timeline), ArgumentError);
}

TEST(HtmlReport, FetchesNothing) {
  const std::vector<ReportEntry> entries = {small_entry()};
  const std::string page = write_html_report(entries);
  for (const char* reference : {"http:", "https:", " src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(HtmlReport, EscapesNames) {
  std::vector<ReportEntry> entries = {small_entry()};
  entries.front().name = "</script><script>alert(1)</script>{{data}}&\"'";
  const std::string page = write_html_report(entries);
  EXPECT_EQ(num_parts(page, "<script"), 2U);
  EXPECT_EQ(num_parts(page, "</script"), 2U);
  EXPECT_THAT(page, HasSubstr("<title>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{data}}"
                              "&amp;&quot;&#39;: 2 ranks"));
  EXPECT_EQ(data_of(page).at("entries").at(0).at("name"), entries.front().name);
}

TEST(HtmlReport, IsTheSameEveryTime) {
  const std::vector<ReportEntry> entries = {small_entry(), small_entry("GPipe")};
  EXPECT_EQ(write_html_report(entries), write_html_report(entries));
}

TEST(HtmlReport, NeedsASchedule) {
  EXPECT_THROW(write_html_report({}), ArgumentError);
}

}  // namespace
}  // namespace penstock
