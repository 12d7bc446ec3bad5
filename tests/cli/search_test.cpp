#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::StartsWith;

// The first model of arXiv 2401.10241, table 4, with room for 2p microbatches.
const std::vector<std::string> kPaper = {
    "search", "-p",    "8",       "-m",           "24",       "--costs", "18.522,18.086,9.337",
    "--hop",  "0.601", "--bytes", "201216,73728", "--memory", "3219456"};

ProgramResult search_with(const std::vector<std::string>& more,
                          std::vector<std::string> arguments = kPaper) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_penstock(arguments);
}

nlohmann::json search_json(const std::vector<std::string>& more,
                           const std::vector<std::string>& arguments = kPaper) {
  std::vector<std::string> all = more;
  all.insert(all.end(), {"--format", "json"});
  const ProgramResult result = search_with(all, arguments);
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  return nlohmann::json::parse(result.output);
}

TEST(SearchCommand, PrintsAScheduleAndItsFigures) {
  const ProgramResult result = search_with({"--placement", "looped"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output, StartsWith("0F0,0F1,"));
  EXPECT_THAT(result.errors, StartsWith("8 ranks, 24 microbatches, looped placement; F 18.522 ms"));
  EXPECT_THAT(result.errors, HasSubstr("found by: list scheduling"));
  EXPECT_THAT(result.errors, HasSubstr("4.33 %"));
  EXPECT_THAT(result.errors, HasSubstr("ZB-H2"));
  EXPECT_THAT(result.errors, HasSubstr("lower bound"));
  EXPECT_EQ(run_penstock({"check", "-"}, result.output).exit_status, 0);
}

TEST(SearchCommand, AgreesWithSimulate) {
  for (const std::string placement : {"looped", "v"}) {
    SCOPED_TRACE(placement);
    const nlohmann::json found = search_json({"--placement", placement});
    const ProgramResult simulated =
        run_penstock({"simulate", "-", "--per-rank", "--costs", "18.522,18.086,9.337", "--hop",
                      "0.601", "--bytes", "201216,73728", "--format", "json"},
                     found.dump());
    ASSERT_EQ(simulated.exit_status, 0) << simulated.errors;
    const nlohmann::json simulation = nlohmann::json::parse(simulated.output);
    EXPECT_EQ(found["search"]["span_bubble"], simulation["span_bubble"]);
    EXPECT_EQ(found["search"]["makespan"], simulation["makespan"]);
    EXPECT_EQ(found["search"]["peak_memory"], simulation["peak_bytes"]);
  }
}

TEST(SearchCommand, HasEverythingInJson) {
  const nlohmann::json found = search_json({});
  EXPECT_EQ(found["format"], "penstock-schedule");
  const nlohmann::json& figures = found["search"];
  EXPECT_EQ(figures["memory_limit"], 3219456);
  EXPECT_EQ(figures["memory_unit"], "byte");
  EXPECT_THAT(figures["peak_memory"].get<std::vector<std::int64_t>>(), Each(Le(3219456)));
  EXPECT_EQ(figures["peak_memory"].size(), 8U);
  EXPECT_LE(figures["span"], figures["best_built_in"]["span"]);
  EXPECT_LE(figures["lower_bound"]["span"], figures["span"]);
  EXPECT_EQ(
      figures["gap"]["span_bubble"].get<double>(),
      figures["span_bubble"].get<double>() - figures["lower_bound"]["span_bubble"].get<double>());
}

TEST(SearchCommand, CountsMicrobatchesWithoutBytes) {
  const std::vector<std::string> arguments = {"search", "-p", "4", "-m", "8", "--memory", "2.5"};
  const nlohmann::json figures = search_json({}, arguments)["search"];
  EXPECT_EQ(figures["memory_unit"], "microbatch");
  EXPECT_EQ(figures["memory_limit"], 2.5);
  EXPECT_THAT(figures["peak_memory"].get<std::vector<double>>(), Each(Le(2.5)));
  EXPECT_THAT(search_with({}, arguments).errors, HasSubstr("microbatches\nfound "));
}

TEST(SearchCommand, NeedsNoLimit) {
  const nlohmann::json figures = search_json({}, {"search", "-p", "4", "-m", "8"})["search"];
  EXPECT_TRUE(figures["memory_limit"].is_null());
  EXPECT_EQ(figures["span_bubble"], 0.0);
}

TEST(SearchCommand, WritesTheScheduleToAFileAndTheFiguresToStandardOutput) {
  const TemporaryFolder folder;
  const ProgramResult result = search_with({"--output", folder.path("found.csv")});
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output, HasSubstr("lower bound"));
  EXPECT_THAT(read_file(folder.path("found.csv")), StartsWith("0F0,"));
}

TEST(SearchCommand, ReadsUnits) {
  const std::vector<std::string> arguments = {"search",  "-p",        "4",        "-m",  "8",
                                              "--bytes", "1048576,0", "--memory", "6MiB"};
  EXPECT_EQ(search_json({}, arguments)["search"]["memory_limit"], 6 * 1048576);
}

TEST(SearchCommand, ReadsAProfile) {
  const TemporaryFolder folder;
  const std::string stage =
      R"({"forward_ms": 1, "input_backward_ms": 1, "weight_backward_ms": 1, "activation_bytes": 5})";
  const std::string path =
      folder.write("stages.json", R"({"format": "penstock-profile", "version": 1, "stages": [)" +
                                      stage + "," + stage + "]}");
  const nlohmann::json found =
      search_json({}, {"search", "-p", "2", "-m", "4", "--profile", path, "--memory", "15"});
  EXPECT_EQ(found["num_stages"], 2);
  EXPECT_EQ(found["search"]["span_bubble"], 0.0);
  EXPECT_THAT(search_with({}, {"search", "-p", "3", "-m", "4", "--profile", path}).errors,
              HasSubstr("the costs are for 2 stages; 3 ranks need 3 (looped placement) or 6"));
}

TEST(SearchCommand, RefusesWhatCannotBe) {
  const auto error = [](const std::vector<std::string>& more) {
    const ProgramResult result = search_with(more, {"search", "-p", "4", "-m", "8"});
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_EQ(result.output, "");
    return result.errors;
  };
  EXPECT_EQ(error({"--bytes", "1000,10", "--memory", "999"}),
            "penstock: no schedule fits into 999 bytes per rank; the smallest limit that works is "
            "1000 bytes\n");
  EXPECT_EQ(error({"--memory", "0.5"}),
            "penstock: no schedule fits into 0.5 microbatches per rank; the smallest limit that "
            "works is 1\n");
  EXPECT_THAT(error({"--memory", "40GiB"}),
              HasSubstr("without --bytes or --profile it counts microbatches"));
  EXPECT_THAT(error({"--memory", "much"}), HasSubstr("--memory: expected a size from 0 up"));
  EXPECT_THAT(error({"--memory", "-1"}), HasSubstr("--memory: expected a size from 0 up"));
  EXPECT_THAT(error({"--costs", "1,-1,1"}), HasSubstr("--costs: expected 3 numbers from 0 up"));
  EXPECT_THAT(error({"--placement", "loop"}), HasSubstr(R"(did you mean "looped"?)"));
  EXPECT_THAT(error({"--objective", "speed"}), HasSubstr("--objective: expected span or makespan"));
}

}  // namespace
}  // namespace penstock::testing
