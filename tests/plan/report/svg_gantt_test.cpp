#include "penstock/plan/report/svg_gantt.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/plan/report/sample_entries.h"
#include "tests/support/num_parts.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::make_entry;
using ::testing::Not;

CostModel one_millisecond_each() {
  constexpr Duration kMillisecond{1'000'000};
  return CostModel::uniform(
      {.forward = kMillisecond, .input_backward = kMillisecond, .weight_backward = kMillisecond});
}

// PENSTOCK_RENEW_GOLDEN=1 writes the file instead; review the difference like code.
TEST(SvgGantt, LooksAsInTheGoldenFile) {
  const std::string path = PENSTOCK_SOURCE_DIR "/tests/golden/report/1f1b_p2_m3.svg";
  const std::string svg =
      write_svg(make_entry("1F1B", {.num_ranks = 2, .num_microbatches = 3}, one_millisecond_each()),
                {.width = 800});
  if (std::getenv("PENSTOCK_RENEW_GOLDEN") != nullptr) std::ofstream(path) << svg;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(svg, golden.str());
}

TEST(SvgGantt, TitleCarriesTheParameters) {
  const std::string svg = write_svg(make_entry(
      "ZBVZeroBubble", {.num_ranks = 8, .num_microbatches = 32}, one_millisecond_each()));
  EXPECT_THAT(svg, HasSubstr(">ZBVZeroBubble: 8 ranks, 16 stages, 32 microbatches</text>"));
  EXPECT_THAT(svg, HasSubstr(">makespan 199 ms, bubble 3.52 % (makespan), 0.00 % (span)</text>"));
  EXPECT_THAT(svg, HasSubstr(">F 1 ms, I 1 ms, W 1 ms, hop 0 ms</text>"));
}

TEST(SvgGantt, EveryCellIsLabelledAtTheDefaultSize) {
  const std::string svg = write_svg(
      make_entry("1F1B", {.num_ranks = 8, .num_microbatches = 32}, one_millisecond_each()));
  EXPECT_EQ(num_parts(svg, "<rect class=\"F\" x"), 8U * 32 + 1);  // and one in the legend
  EXPECT_THAT(svg, HasSubstr(">7B31</text>"));
  EXPECT_THAT(svg, HasSubstr(">7F</text>"));  // over its microbatch, where the cell is narrow
  const std::size_t num_backward_labels = num_parts(svg, "label on-B");
  const std::size_t num_forward_labels = num_parts(svg, "label on-F");
  EXPECT_EQ(num_backward_labels, 8U * 32);
  EXPECT_EQ(num_forward_labels, 2U * 8 * 32);
}

TEST(SvgGantt, NarrowCellsHaveNoLabels) {
  const std::string svg = write_svg(
      make_entry("1F1B", {.num_ranks = 4, .num_microbatches = 200}, one_millisecond_each()),
      {.width = 600, .height = 400});
  EXPECT_THAT(svg, HasSubstr("width=\"600\" height=\"400\""));
  EXPECT_THAT(svg, Not(HasSubstr("class=\"label")));
}

TEST(SvgGantt, PairsShareTheirCell) {
  const std::string svg = write_svg(
      make_entry("DualPipeV", {.num_ranks = 2, .num_microbatches = 4}, one_millisecond_each()));
  EXPECT_THAT(svg, HasSubstr("class=\"pair\""));
  EXPECT_THAT(svg, Not(HasSubstr("OVERLAP_F_B")));
}

TEST(SvgGantt, EscapesTheName) {
  ReportEntry entry =
      make_entry("GPipe", {.num_ranks = 1, .num_microbatches = 1}, one_millisecond_each());
  entry.name = "<script>alert('&')</script>";
  const std::string svg = write_svg(entry);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;: 1 rank"));
}

TEST(SvgGantt, DrawsAnEmptyStep) {
  const Duration none{};
  const std::string svg = write_svg(make_entry(
      "GPipe", {.num_ranks = 2, .num_microbatches = 1},
      CostModel::uniform({.forward = none, .input_backward = none, .weight_backward = none})));
  EXPECT_THAT(svg, HasSubstr("makespan 0 ms"));
}

TEST(SvgGantt, RefusesASizeWithoutRoom) {
  const ReportEntry entry =
      make_entry("GPipe", {.num_ranks = 8, .num_microbatches = 1}, one_millisecond_each());
  try {
    write_svg(entry, {.width = 600, .height = 100});
    FAIL() << "expected an ArgumentError";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "a picture of 600 x 100 pixels is too small for 8 ranks; use at least 320 x 192");
  }
}

}  // namespace
}  // namespace penstock
