#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> generate_arguments(const GoldenRow& row) {
  return {"generate",          row.name,
          "--ranks",           std::to_string(row.shape.num_ranks),
          "--microbatches",    std::to_string(row.shape.num_microbatches),
          "--stages-per-rank", std::to_string(row.shape.stages_per_rank)};
}

ProgramResult generate(const GoldenRow& row, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = generate_arguments(row);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_penstock(arguments);
}

// All rows are for the library's tests; the program gets one of each schedule.
std::vector<GoldenRow> one_row_per_schedule() {
  std::vector<GoldenRow> rows;
  for (const GoldenRow& row : read_golden_index()) {
    const bool is_small = row.shape.num_ranks < 4 || row.shape.num_microbatches < 8;
    if (row.is_refused || is_small || (!rows.empty() && rows.back().name == row.name)) continue;
    rows.push_back(row);
  }
  return rows;
}

TEST(Generate, PrintsTheBytesOfTheReference) {
  const std::vector<GoldenRow> rows = one_row_per_schedule();
  ASSERT_GE(rows.size(), 6U);
  for (const GoldenRow& row : rows) {
    SCOPED_TRACE(golden_name(row));
    const ProgramResult compute = generate(row);
    EXPECT_EQ(compute.exit_status, 0);
    EXPECT_EQ(compute.errors, "");
    EXPECT_EQ(sha256(compute.output), row.compute_sha256);
    EXPECT_EQ(sha256(generate(row, {"--lower"}).output), row.lowered_sha256);
  }
}

TEST(Generate, PrintsCsvByDefault) {
  const ProgramResult result = run_penstock({"generate", "gpipe", "-p", "2", "-m", "2"});
  EXPECT_EQ(result.output, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
}

TEST(Generate, EndsLinesWithCrLfOnRequest) {
  const ProgramResult result = run_penstock({"generate", "gpipe", "-p", "1", "-m", "1", "--crlf"});
  EXPECT_EQ(result.output, "0F0,0B0\r\n");
}

TEST(Generate, PrintsATable) {
  const ProgramResult result =
      run_penstock({"generate", "gpipe", "-p", "2", "-m", "1", "--format", "table"});
  EXPECT_EQ(result.output,
            "        Rank 0 Rank 1\n"
            "Step 0: 0F0    1F0   \n"
            "Step 1: 0B0    1B0   \n");
}

TEST(Generate, PrintsJson) {
  const ProgramResult result =
      run_penstock({"generate", "gpipe", "-p", "1", "-m", "1", "--format", "json"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output, StartsWith("{\n  \"format\": \"penstock-schedule\""));
  EXPECT_THAT(result.output, HasSubstr("\"0F0\", \"0B0\""));
}

TEST(Generate, EveryListedScheduleExistsAndIsValid) {
  std::istringstream list(run_penstock({"list"}).output);
  std::string line;
  std::getline(list, line);
  EXPECT_THAT(line, StartsWith("SCHEDULE"));
  int count = 0;
  for (; std::getline(list, line); ++count) {
    const std::string name = line.substr(0, line.find(' '));
    const ProgramResult result =
        run_shell("penstock generate " + name + " -p 2 -m 4 --lower | penstock check -");
    EXPECT_EQ(result.exit_status, 0) << name;
    EXPECT_EQ(result.errors, "") << name;
    EXPECT_THAT(result.output, StartsWith("valid: ")) << name;
  }
  EXPECT_GE(count, 15);
}

TEST(Generate, NamesAreFoundWhateverTheirCase) {
  const ProgramResult expected =
      run_penstock({"generate", "Interleaved1F1B", "-p", "2", "-m", "4"});
  EXPECT_EQ(expected.exit_status, 0);
  for (const char* name : {"interleaved1f1b", "INTERLEAVED-1F1B", "ScheduleInterleaved1F1B"}) {
    EXPECT_EQ(run_penstock({"generate", name, "-p", "2", "-m", "4"}).output, expected.output)
        << name;
  }
}

TEST(Generate, WritesAFileInsteadOfStandardOutput) {
  const TemporaryFolder folder;
  const std::string path = folder.path("order.csv");
  const ProgramResult result =
      run_penstock({"generate", "gpipe", "-p", "1", "-m", "1", "--output", path});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output + result.errors, "");
  EXPECT_EQ(read_file(path), "0F0,0B0\n");
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("order.csv"));
}

}  // namespace
}  // namespace penstock::testing
