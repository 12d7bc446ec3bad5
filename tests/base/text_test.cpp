#include "penstock/base/text.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "penstock/base/grouped.h"

namespace penstock {
namespace {

TEST(Quote, SurroundsPlainText) {
  EXPECT_EQ(quote("2F0"), R"("2F0")");
  EXPECT_EQ(quote(""), R"("")");
}

TEST(Quote, EscapesWhatWouldHideOrEndTheQuotation) {
  EXPECT_EQ(quote(R"(a"b\c)"), R"("a\"b\\c")");
  EXPECT_EQ(quote("\t\r\n\x7f\xff"), R"("\x09\x0d\x0a\x7f\xff")");
  EXPECT_EQ(quote(std::string_view("\0", 1)), R"("\x00")");
}

TEST(Quote, CutsLongText) {
  EXPECT_EQ(quote("abcdef", 6), R"("abcdef")");
  EXPECT_EQ(quote("abcdefg", 6), R"("abcdef...")");
  EXPECT_LT(quote(std::string(100'000'000, '\0')).size(), 200U);
}

TEST(SameName, IgnoresCaseAndSeparators) {
  EXPECT_TRUE(same_name("zb_h1", "ZB-H1"));
  EXPECT_TRUE(same_name("Interleaved 1F1B", "interleaved_1f1b"));
  EXPECT_FALSE(same_name("zb_h1", "zb_h2"));
  EXPECT_FALSE(same_name("gpipe", "gpipe2"));
}

constexpr std::array<std::string_view, 4> kSchedules = {"gpipe", "1f1b", "interleaved_1f1b",
                                                        "zb_v"};

TEST(NearestName, FindsTheNameMeant) {
  EXPECT_EQ(nearest_name("1fb1", kSchedules), "1f1b");
  EXPECT_EQ(nearest_name("G-Pip", kSchedules), "gpipe");
  EXPECT_EQ(nearest_name("interleaved1f1", kSchedules), "interleaved_1f1b");
}

TEST(NearestName, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("breadth_first", kSchedules), "");
  EXPECT_EQ(nearest_name("", kSchedules), "");
  EXPECT_EQ(nearest_name(std::string(100'000'000, 'z'), kSchedules), "");
  EXPECT_EQ(nearest_name("1f1b", {}), "");
}

TEST(Counted, ChoosesTheNoun) {
  EXPECT_EQ(counted(0, "rank", "ranks"), "0 ranks");
  EXPECT_EQ(counted(1, "rank", "ranks"), "1 rank");
  EXPECT_EQ(counted(3, "microbatch", "microbatches"), "3 microbatches");
}

TEST(Grouped, ParesDigitsByThrees) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(980), "980");
  EXPECT_EQ(grouped(1980), "1 980");
  EXPECT_EQ(grouped(-123456), "-123 456");
  EXPECT_EQ(grouped(1234567), "1 234 567");
}

}  // namespace
}  // namespace penstock
