#include "penstock/plan/schedule/table.h"

#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/plan/schedule/from_csv.h"

namespace penstock {
namespace {

// The table with its spaces made visible.
std::string dotted_table(const Schedule& schedule, std::optional<int> error_step = std::nullopt) {
  std::string result;
  for (const char letter : write_table(schedule, error_step)) {
    result += letter == ' ' ? "·" : std::string(1, letter);
  }
  return result;
}

TEST(WriteTable, PrintsOneRowPerStepAndMarksTheError) {
  const Schedule schedule = from_csv(
      "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1\n"
      ",1F0,1F1,,3F0,3B0,3F1,3B1,,1B0,,1B1\n");
  const std::string table = dotted_table(schedule, 3);
  EXPECT_TRUE(
      table.starts_with("·········Rank·0··Rank·1·\n"
                        "Step·00:·0F0············\n"
                        "Step·01:·0F1·····1F0····\n"
                        "Step·02:·2F0·····1F1····\n"
                        "Step·03:·2F1·············<--·ERROR·HERE\n"))
      << table;
  EXPECT_TRUE(table.ends_with("Step·13:·0B1············\n")) << table;
}

TEST(WriteTable, WidensAColumnToItsLongestCell) {
  EXPECT_EQ(dotted_table(from_csv("0F0,(0F1;3B0)OVERLAP_F_B\n1F0\n")),
            "········Rank·0···············Rank·1\n"
            "Step·0:·0F0··················1F0···\n"
            "Step·1:·(0F1;3B0)OVERLAP_F_B·······\n");
}

TEST(WriteTable, HasColumnsForMoreRanksThanSteps) {
  EXPECT_EQ(dotted_table(from_csv("0F0\n1F0\n2B0\n"), 0),
            "········Rank·0·Rank·1·Rank·2\n"
            "Step·0:·0F0····1F0····2B0····<--·ERROR·HERE\n");
}

TEST(WriteTable, WidensAColumnToTheLabelOfItsRank) {
  const std::string table = dotted_table(from_csv("0F0\n1F0\n\n\n\n\n\n\n\n\n0B0\n"));
  EXPECT_TRUE(table.ends_with("·0B0····\n")) << table;
}

TEST(WriteTable, PrintsTheHeaderOfAScheduleWithoutSteps) {
  EXPECT_EQ(dotted_table(from_csv("\n\n")), "········Rank·0·Rank·1\n");
  EXPECT_EQ(dotted_table(Schedule{}), "·······\n");
}

TEST(WriteTable, MarksNothingForAStepThatDoesNotExist) {
  const Schedule schedule = from_csv("0F0\n");
  EXPECT_EQ(write_table(schedule, 1), write_table(schedule));
  EXPECT_EQ(write_table(schedule, -1), write_table(schedule));
}

}  // namespace
}  // namespace penstock
