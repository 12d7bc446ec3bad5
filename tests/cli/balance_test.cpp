#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLayers = R"({"format": "penstock-profile", "version": 1, "layers": [
  {"name": "embedding", "forward_ms": 1, "backward_ms": 1, "bytes": 400, "pin": "first"},
  {"name": "block 0", "forward_ms": 2, "backward_ms": 4, "bytes": 100},
  {"name": "block 1", "forward_ms": 2, "backward_ms": 4, "bytes": 100},
  {"name": "head", "forward_ms": 1, "backward_ms": 3, "bytes": 400, "pin": "last"}]})";

TEST(BalanceCommand, PrintsATableOfStages) {
  const ProgramResult result =
      run_penstock({"balance", "--profile", "-", "--stages", "2"}, kLayers);
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.output,
            "stage  layers         time ms    share          bytes  names\n"
            "    0  0-1                  8  44.44 %            500  embedding ... block 0\n"
            "    1  2-3                 10  55.56 %            500  block 1 ... head\n"
            "slowest stage 10 ms; 2 stages of equal time would take 9 ms\n");
}

TEST(BalanceCommand, PrintsJson) {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_penstock({"balance", "--profile", folder.write("layers.json", kLayers), "--stages", "3",
                    "--format", "json"});
  const nlohmann::json json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["slowest"], 8.0);
  ASSERT_EQ(json["stages"].size(), 3U);
  EXPECT_EQ(json["stages"][0]["num_layers"], 2);
  EXPECT_EQ(json["stages"][2]["first_layer"], 3);
  EXPECT_THAT(json["stages"][0]["layers"], ElementsAre("embedding", "block 0"));
}

TEST(BalanceCommand, RefusesWhatCannotBe) {
  const auto error = [](const std::string& option, const std::string& value,
                        const std::string& stages) {
    const ProgramResult result =
        run_penstock({"balance", "--profile", "-", "--stages", stages, option, value}, kLayers);
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_EQ(result.output, "");
    return result.errors;
  };
  EXPECT_EQ(error("--memory", "0.4KB", "2"),
            "penstock: no cut into 2 stages fits into 400 bytes per stage; the smallest limit that "
            "works is 500 bytes\n");
  EXPECT_EQ(error("--memory", "399", "4"),
            "penstock: no cut into 4 stages fits into 399 bytes per stage: layer 0 "
            "(\"embedding\") alone has 400 bytes; the smallest limit that works is 400 bytes\n");
  EXPECT_EQ(error("--format", "text", "5"),
            "penstock: cannot cut 4 layers into 5 stages; use at most 4\n");
  const ProgramResult without_layers =
      run_penstock({"balance", "--profile", "-", "--stages", "1"},
                   R"({"format": "penstock-profile", "version": 1, "stages": [
         {"forward_ms": 1, "input_backward_ms": 1, "weight_backward_ms": 1}]})");
  EXPECT_THAT(without_layers.errors, HasSubstr("standard input: the profile has no layers"));
}

}  // namespace
}  // namespace penstock::testing
