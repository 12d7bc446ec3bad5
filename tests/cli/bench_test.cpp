#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kQuick =
    "penstock bench step --hidden 8 --rows 2 --microbatches 4 --steps 3 ";

TEST(Bench, PrintsOneLineOfJson) {
  const ProgramResult result = run_shell(std::string(kQuick) + "--schedule zbv --ranks 2 --json");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  const auto json = nlohmann::json::parse(result.output);
  for (const char* key :
       {"step_s", "best_s", "baseline_s", "baseline_best_s", "two_cores_s", "schedule_bound_s"}) {
    EXPECT_GT(json.at(key).get<double>(), 0) << key;
  }
  EXPECT_LE(json.at("best_s"), json.at("step_s"));
  EXPECT_EQ(json.at("stages_per_rank"), 2);
  // (p - 1) / (6 m + p - 1) with p = 2 and m = 4
  EXPECT_DOUBLE_EQ(json.at("schedule_bound_s").get<double>(),
                   json.at("two_cores_s").get<double>() / (1 - 1.0 / 25));
}

TEST(Bench, RunsRanksAsProcesses) {
  const ProgramResult threads = run_shell(std::string(kQuick) + "--schedule zbv --json");
  ASSERT_EQ(threads.exit_status, 0) << threads.errors;
  const auto expected = nlohmann::ordered_json::parse(threads.output);
  for (const char* transport : {"shm", "gloo"}) {
    const ProgramResult result =
        run_shell(std::string(kQuick) + "--schedule zbv --json --pin --transport " + transport);
    ASSERT_EQ(result.exit_status, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    const auto json = nlohmann::ordered_json::parse(result.output);
    EXPECT_EQ(json.at("transport"), transport);
    EXPECT_EQ(json.at("actions"), expected.at("actions"));
    std::string keys;
    std::string expected_keys;
    for (const auto& [key, value] : json.items()) keys += key + " ";
    for (const auto& [key, value] : expected.items()) expected_keys += key + " ";
    EXPECT_EQ(keys, expected_keys);
    for (const char* key : {"step_s", "best_s", "baseline_s", "two_cores_s"}) {
      EXPECT_GT(json.at(key).get<double>(), 0) << key;
    }
  }
}

// What OpenBLAS says the processor is, the last time it was loaded.
std::string core_of(const std::string& command) {
  const std::string errors = run_shell("OPENBLAS_VERBOSE=2 " + command).errors;
  const std::size_t begin = errors.rfind("Core: ");
  return begin == std::string::npos ? "" : errors.substr(begin, errors.find('\n', begin) - begin);
}

TEST(Bench, MultipliesAsTrainingDoes) {
  const std::string training =
      core_of("penstock train --model mlp --width 8 --steps 2 --no-report");
  EXPECT_EQ(core_of(kQuick), training);
}

TEST(Bench, MeasuresWhatTheSimulatorReads) {
  const TemporaryFolder folder;
  const std::string in_folder = "cd '" + folder.path("") + "' && ";
  const auto output_of = [&](const std::string& command) {
    const ProgramResult result = run_shell(in_folder + command);
    EXPECT_EQ(result.exit_status, 0) << command << ": " << result.errors;
    return result.output;
  };
  EXPECT_THAT(output_of(std::string(kQuick) + "--schedule zb-h1 --profile p.json --report r.html"),
              HasSubstr("The pipeline reaches "));
  output_of("grep -c 'zb-h1, measured' r.html");
  // The costs are those that were measured, and not the default.
  const auto json_of = [&](const std::string& command) {
    return nlohmann::json::parse(output_of("penstock " + command + " -p 2 -m 4 --format json"));
  };
  EXPECT_GT(json_of("simulate zb-h1 --profile p.json").at("makespan").get<double>(), 0);
  EXPECT_NE(json_of("simulate zb-h1 --profile p.json").at("makespan"),
            json_of("simulate zb-h1").at("makespan"));
  EXPECT_NE(json_of("search --effort 0 --profile p.json").at("search").at("makespan"),
            json_of("search --effort 0").at("search").at("makespan"));
  output_of("penstock report zb-h1 -p 2 -m 4 --profile p.json --output measured.svg");
  output_of("penstock report zb-h1 -p 2 -m 4 --output default.svg");
  output_of("! cmp -s measured.svg default.svg");
}

// The events of a Chrome trace, by kind and category, and the names of the computations.
std::pair<std::set<std::string>, std::multiset<std::string>> events_of(const std::string& path) {
  const auto trace = nlohmann::json::parse(std::ifstream(path));
  std::set<std::string> kinds;
  std::multiset<std::string> computations;
  for (const auto& event : trace.at("traceEvents")) {
    std::string keys;
    for (const auto& [key, value] : event.items()) keys += key + " ";
    kinds.insert(event.at("ph").get<std::string>() + ": " + keys);
    if (event.at("ph") == "X") computations.insert(event.at("name").get<std::string>());
  }
  return {kinds, computations};
}

TEST(Bench, TracesARealRunLikeASimulatedOne) {
  const TemporaryFolder folder;
  const std::string in_folder = "cd '" + folder.path("") + "' && ";
  const ProgramResult result =
      run_shell(in_folder + kQuick + "--schedule zb-h1 --trace measured.json --json");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  const ProgramResult simulated = run_shell(
      in_folder + "penstock report zb-h1 -p 2 -m 4 --no-sharding --output simulated.json");
  ASSERT_EQ(simulated.exit_status, 0) << simulated.errors;
  const auto [kinds, computations] = events_of(folder.path("measured.json"));
  const auto [expected_kinds, expected_computations] = events_of(folder.path("simulated.json"));
  EXPECT_EQ(kinds, expected_kinds);
  EXPECT_EQ(computations, expected_computations);
  EXPECT_GT(computations.count("0F0"), 0U);
}

TEST(Bench, TimesMessagesBetweenTwoProcesses) {
  const ProgramResult result =
      run_shell("penstock bench transport --sizes 4,65536 --samples 1 --json");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json.at("samples"), 1);
  for (const char* way : {"memcpy", "threads", "shm", "gloo", "c10d"}) {
    const auto& times = json.at("ways").at(way);
    ASSERT_EQ(times.size(), 2U) << way;
    EXPECT_EQ(times[1].at("bytes"), 65536);
    EXPECT_GT(times[0].at("best_s").get<double>(), 0) << way;
    EXPECT_LE(times[0].at("best_s"), times[0].at("median_s")) << way;
    EXPECT_DOUBLE_EQ(times[1].at("bytes_per_s").get<double>(),
                     65536 / times[1].at("median_s").get<double>());
  }
  const auto& header = json.at("header");
  ASSERT_EQ(header.size(), 2U);
  EXPECT_EQ(header[0].at("bytes"), 4);
  EXPECT_EQ(header[0].at("pairs"), 100);
  EXPECT_LE(header[0].at("low_quartile_s"), header[0].at("median_s"));
  EXPECT_LE(header[0].at("median_s"), header[0].at("high_quartile_s"));
  EXPECT_NE(header[0].at("processor_s").get<double>(), 0);
  const ProgramResult text = run_shell("penstock bench transport --sizes 64 --samples 1 --read");
  ASSERT_EQ(text.exit_status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("microseconds one way, median         memcpy    threads"));
  EXPECT_THAT(text.output, HasSubstr("microseconds: gloo less c10d"));
  const ProgramResult odd = run_shell("penstock bench transport --sizes 6");
  EXPECT_EQ(odd.exit_status, 2);
  EXPECT_THAT(odd.errors, HasSubstr("messages have a multiple of 4 bytes, not 6"));
}

TEST(Bench, SaysWhichSizesOfMessagesItTakes) {
  const auto errors_of = [](const std::string& sizes) {
    const ProgramResult result = run_shell("penstock bench transport --sizes " + sizes);
    EXPECT_EQ(result.exit_status, 2) << sizes;
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_THAT(result.errors, ::testing::Not(HasSubstr("\\x0a"))) << sizes;
    return result.errors;
  };
  for (const std::string sizes : {"abc", "99999999999999999999", "4,,8", "4,-4"}) {
    EXPECT_EQ(errors_of(sizes),
              "penstock: --sizes: expected numbers of bytes, for example 4,65536, found \"" +
                  sizes + "\" (see 'penstock bench transport --help')\n");
  }
  EXPECT_THAT(errors_of("4,4000000000000000"),
              HasSubstr("messages of 4000000000000000 bytes are too large for this machine, which "
                        "has "));
  EXPECT_THAT(errors_of("0"), HasSubstr("messages have a multiple of 4 bytes, not 0"));
}

// Not with the stack of libtorch, which is pages long. A weight of 256 TB fits nowhere.
TEST(Bench, SaysInOneLineWhatLibtorchCannotDo) {
  const ProgramResult result = run_shell(
      "ASAN_OPTIONS=$ASAN_OPTIONS:allocator_may_return_null=1 penstock bench step "
      "--hidden 8000000 --rows 1 --microbatches 1 --layers 1 --steps 1");
  EXPECT_EQ(result.exit_status, 2) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("can't allocate memory"));
  EXPECT_THAT(result.errors, ::testing::Not(HasSubstr("\\x0a"))) << result.errors;
}

TEST(Bench, PointsToTheHelpOfTheCommandThatWasCalled) {
  const auto errors_of = [](const std::string& arguments) {
    const ProgramResult result = run_shell("penstock " + arguments);
    EXPECT_EQ(result.exit_status, 2) << arguments;
    return result.errors;
  };
  EXPECT_EQ(errors_of("bench step --ranks 0"),
            "penstock: --ranks: expected a whole number from 1 to 2147483647, found \"0\" (see "
            "'penstock bench step --help')\n");
  EXPECT_EQ(errors_of("bench step --rnks 2"),
            "penstock: unknown option \"--rnks\"; did you mean \"--ranks\"? (see 'penstock bench "
            "step --help')\n");
  EXPECT_EQ(errors_of("bench"),
            "penstock: expected a command, one of step, transport (see 'penstock bench --help')\n");
  EXPECT_EQ(errors_of("bench stp"),
            "penstock: unknown command \"stp\"; did you mean \"step\"? (see 'penstock bench "
            "--help')\n");
}

TEST(Bench, RefusesWhatItCannotRun) {
  const ProgramResult unknown = run_shell(std::string(kQuick) + "--schedule zbw");
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("unknown schedule \"zbw\""));
  const ProgramResult shape = run_shell(std::string(kQuick) + "--schedule zbv --stages-per-rank 3");
  EXPECT_EQ(shape.exit_status, 2);
  EXPECT_THAT(shape.errors, HasSubstr("needs exactly 2 stages per rank"));
  const ProgramResult forward = run_shell(std::string(kQuick) + "--schedule ForwardOnly");
  EXPECT_EQ(forward.exit_status, 2);
  EXPECT_THAT(forward.errors, HasSubstr("no backwards to train with"));
  const ProgramResult transport = run_shell(std::string(kQuick) + "--transport pigeon");
  EXPECT_EQ(transport.exit_status, 2);
  EXPECT_THAT(transport.errors, HasSubstr("expected threads, shm or gloo, found \"pigeon\""));
}

TEST(Bench, RefusesWhatProcessesCannotDo) {
  const auto errors_of = [](const std::string& flags) {
    const ProgramResult result = run_shell(std::string(kQuick) + flags);
    EXPECT_EQ(result.exit_status, 2) << flags;
    return result.errors;
  };
  EXPECT_THAT(errors_of("--transport shm --ranks 1"),
              HasSubstr("--transport shm connects at least 2 ranks, not 1"));
  EXPECT_THAT(errors_of("--transport shm --profile p.json"),
              HasSubstr("--profile, --report and --trace watch ranks that are threads"));
  EXPECT_THAT(errors_of("--transport shm --trace t.json"), HasSubstr("leave --transport out"));
  EXPECT_THAT(errors_of("--transport shm --schedule zbw"), HasSubstr("unknown schedule \"zbw\""));
}

}  // namespace
}  // namespace penstock::testing
