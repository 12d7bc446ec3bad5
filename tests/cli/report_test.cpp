#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

ProgramResult report(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"report", "--ranks", "2", "--microbatches", "4"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_penstock(all);
}

TEST(Report, TheEndingDecidesWhatIsWritten) {
  const TemporaryFolder folder;
  for (const std::string name : {"a.html", "a.svg", "a.json"}) {
    const ProgramResult result = report({"1f1b", "--output", folder.path(name)});
    EXPECT_EQ(result.exit_status, 0) << result.errors;
    EXPECT_EQ(result.output + result.errors, "");
  }
  EXPECT_THAT(read_file(folder.path("a.html")), StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(read_file(folder.path("a.svg")), StartsWith("<svg "));
  const auto trace = nlohmann::json::parse(read_file(folder.path("a.json")));
  EXPECT_THAT(trace.at("traceEvents"), Not(IsEmpty()));
  EXPECT_THAT(folder.names(), ElementsAre("a.html", "a.json", "a.svg"));
}

TEST(Report, ComparesNamesAndFilesInOnePage) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("mine.csv", run_penstock({"generate", "gpipe", "-p", "2", "-m", "4"}).output);
  ASSERT_EQ(report({"zbv", file, "-o", folder.path("a.html")}).exit_status, 0);
  const std::string page = read_file(folder.path("a.html"));
  EXPECT_THAT(page, HasSubstr("ZBVZeroBubble"));
  EXPECT_THAT(page, HasSubstr("mine.csv"));
}

TEST(Report, TimesAreMilliseconds) {
  const TemporaryFolder folder;
  ASSERT_EQ(
      report({"1f1b", "--costs", "2,3,4", "--hop", "0.5", "-o", folder.path("a.svg")}).exit_status,
      0);
  EXPECT_THAT(read_file(folder.path("a.svg")), HasSubstr("F 2 ms, I 3 ms, W 4 ms, hop 0.5 ms"));
}

TEST(Report, DrawsInTheSizeThatIsAskedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(
      report({"1f1b", "--width", "640", "--height", "360", "-o", folder.path("a.svg")}).exit_status,
      0);
  EXPECT_THAT(read_file(folder.path("a.svg")), HasSubstr("width=\"640\" height=\"360\""));
  const ProgramResult small = report({"1f1b", "--height", "50", "-o", folder.path("b.svg")});
  EXPECT_EQ(small.exit_status, 2);
  EXPECT_THAT(small.errors, HasSubstr("1920 x 50 pixels is too small for 2 ranks"));
}

TEST(Report, OnlyAPageShowsSeveralSchedules) {
  const TemporaryFolder folder;
  const ProgramResult result = report({"1f1b", "gpipe", "-o", folder.path("a.svg")});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.errors, HasSubstr("shows one schedule, found 2; only .html compares several"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(Report, RefusesOtherEndings) {
  const ProgramResult result = report({"1f1b", "--output", "a.png"});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.errors,
            "penstock: --output: expected a file that ends in .html, .svg or .json, found "
            "\"a.png\"\n");
}

TEST(Report, LeavesNothingBehindWhenTheScheduleIsWrong) {
  const TemporaryFolder folder;
  const std::string file = folder.write("wrong.csv", "0F0,0B0\n1B0,1F0\n");
  const ProgramResult result = report({file, "-o", folder.path("a.html")});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(folder.names(), ElementsAre("wrong.csv"));
}

}  // namespace
}  // namespace penstock::testing
