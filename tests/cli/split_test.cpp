#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string fixture(const std::string& name) {
  return std::string(PENSTOCK_SOURCE_DIR) + "/tests/run/pipe/fixtures/" + name + ".pt";
}

TEST(Split, WritesOneFilePerStageAndAManifest) {
  const TemporaryFolder folder;
  const ProgramResult result = run_penstock(
      {"split", fixture("tied_gpt"), "--stages", "3", "--output", folder.path("stages")});
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("wrote 3 stages and manifest.json to "));
  EXPECT_THAT(folder.names(), ElementsAre("stages"));  // and nothing unfinished
  const auto manifest = nlohmann::json::parse(read_file(folder.path("stages/manifest.json")));
  ASSERT_EQ(manifest.at("stages").size(), 3U);
  EXPECT_EQ(manifest.at("stages")[0].at("inputs"), nlohmann::json({"words"}));
  EXPECT_EQ(manifest.at("shared_parameters").size(), 1U);  // the tied embedding
  for (const auto& stage : manifest.at("stages")) {
    const std::string file = stage.at("file");
    EXPECT_EQ(run_penstock({"inspect", folder.path("stages/" + file), "--stages", "1"}).exit_status,
              0)
        << file;
  }
}

TEST(Split, CutsAtModules) {
  const TemporaryFolder folder;
  const std::string output = folder.path("stages");
  const ProgramResult unknown =
      run_penstock({"split", fixture("conv_net"), "--at", "blokc", "--output", output});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("the model has no module \"blokc\""));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(Split, AsksWhereToCut) {
  const std::string model = fixture("conv_net");
  const auto errors_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"split", model, "--output", "never"});
    const ProgramResult result = run_penstock(arguments);
    EXPECT_EQ(result.exit_status, 2);
    return result.errors;
  };
  EXPECT_THAT(errors_of({}), HasSubstr("say where to cut"));
  EXPECT_THAT(errors_of({"--stages", "2", "--at", "a"}), HasSubstr("say where to cut"));
  EXPECT_THAT(errors_of({"--stages", "2", "--policy", "time"}), HasSubstr("needs --example"));
  EXPECT_THAT(errors_of({"--stages", "2", "--example", "2y3"}),
              AllOf(HasSubstr("cannot make an example input of \"2y3\""), HasSubstr("4x16:int64")));
  EXPECT_THAT(errors_of({"--stages", "2", "--example", "0x3"}), HasSubstr("\"0x3\""));
  EXPECT_THAT(errors_of({"--stages", "2", "--example", "2x3:int"}), HasSubstr("\"2x3:int\""));
}

TEST(Split, LeavesFilesOfOthersAlone) {
  const TemporaryFolder folder;
  folder.write("mine.txt", "text");
  const ProgramResult result =
      run_penstock({"split", fixture("conv_net"), "--stages", "2", "--output", folder.path("")});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.errors, HasSubstr("is not empty"));
  EXPECT_THAT(folder.names(), ElementsAre("mine.txt"));
}

TEST(Split, RefusesFilesThatAreNoModels) {
  const TemporaryFolder folder;
  const std::string text = folder.write("model.pt", "not a model");
  const std::string empty = folder.write("empty.pt", "");
  for (const std::string& path : {text, empty}) {
    const ProgramResult result =
        run_penstock({"split", path, "--stages", "2", "--output", folder.path("stages")});
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_THAT(result.errors, AllOf(HasSubstr(path), HasSubstr("not a TorchScript file")));
  }
  EXPECT_THAT(run_penstock({"inspect", folder.path("missing.pt")}).errors,
              HasSubstr("there is no such file"));
}

TEST(Inspect, ShowsModulesAndProposesCuts) {
  const ProgramResult result = run_penstock({"inspect", fixture("tied_gpt")});
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("inputs: words\n"), HasSubstr("(model)"),
                    HasSubstr("proposed cuts into 2 stages, balanced by parameters")));
}

TEST(Inspect, MeasuresOnExamples) {
  const ProgramResult result = run_penstock({"inspect", fixture("tied_gpt"), "--example",
                                             "4x6:int64", "--stages", "3", "--format", "json"});
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json.at("balanced_by"), "time");
  EXPECT_EQ(json.at("stages").size(), 3U);
  EXPECT_EQ(json.at("modules")[0].at("path"), "");
  EXPECT_GT(json.at("modules")[0].at("forward_ms").get<double>(), 0);
  EXPECT_GT(json.at("modules")[0].at("backward_ms").get<double>(), 0);
}

}  // namespace
}  // namespace penstock::testing
