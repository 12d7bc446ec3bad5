#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string output_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--ranks", "4", "--microbatches", "8"});
  const ProgramResult result = run_penstock(arguments);
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  return result.output;
}

TEST(SimulateCommand, LedgerAddsUpToTheIdleTime) {
  const auto json =
      nlohmann::json::parse(output_of({"simulate", "zbv", "--hop", "0.25", "--format", "json"}));
  ASSERT_EQ(json["ledger"].size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    double sum = 0;
    for (const auto& [cause, time] : json["ledger"][rank].items()) sum += time.get<double>();
    EXPECT_DOUBLE_EQ(sum, json["idle"][rank].get<double>());
    EXPECT_EQ(json["ledger"][rank]["overhead"], 0);
  }
}

TEST(SimulateCommand, SpeaksOfBytesOnlyIfSizesAreGiven) {
  for (const std::string command : {"simulate", "compare"}) {
    SCOPED_TRACE(command);
    EXPECT_THAT(output_of({command, "1f1b"}), Not(HasSubstr("bytes")));
    EXPECT_THAT(output_of({command, "1f1b", "--bytes", "1000,0"}), HasSubstr("bytes"));
  }
  const auto json = nlohmann::json::parse(output_of({"simulate", "1f1b", "--format", "json"}));
  EXPECT_TRUE(json.at("peak_bytes").is_null());
}

// Half a byte per stage was rounded up to one, so V schedules seemed to need twice their memory.
TEST(CompareCommand, SharesTheBytesOfARankAmongItsStages) {
  const auto rows = nlohmann::json::parse(output_of(
      {"compare", "zb-h1", "zbv", "--per-rank", "--bytes", "1000,500", "--format", "json"}));
  EXPECT_EQ(rows[0]["peak_activations"], rows[1]["peak_activations"]);
  EXPECT_EQ(rows[0]["peak_bytes"], rows[1]["peak_bytes"]);
  const auto plain = nlohmann::json::parse(
      output_of({"compare", "zb-h1", "zbv", "--per-rank", "--format", "json"}));
  EXPECT_EQ(plain[0]["peak_activations"], plain[1]["peak_activations"]);
  EXPECT_TRUE(plain[1]["peak_bytes"].is_null());
}

}  // namespace
}  // namespace penstock::testing
