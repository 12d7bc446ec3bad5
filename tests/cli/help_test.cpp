#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

// The lines of a help text that are commands to paste.
std::vector<std::string> examples_in(const std::string& help) {
  std::vector<std::string> examples;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  penstock ")) examples.push_back(line.substr(2));
  }
  return examples;
}

// The commands that the program lists, and the program itself as "".
std::vector<std::string> commands() {
  const std::string help = run_penstock({"--help"}).output;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::vector<std::string> names = {""};
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::string name;
    if (line.starts_with("  ") && std::istringstream(line) >> name) names.push_back(name);
  }
  return names;
}

TEST(Help, ListsEveryCommand) {
  EXPECT_THAT(commands(), IsSupersetOf({"list", "generate", "lower", "check"}));
}

TEST(Help, FitsATerminalAndOpensWithCommandsThatWork) {
  for (const std::string& command : commands()) {
    SCOPED_TRACE(command);
    const ProgramResult help = run_shell("penstock " + command + " --help");
    EXPECT_EQ(help.exit_status, 0);
    EXPECT_EQ(help.errors, "");
    const std::vector<std::string> examples = examples_in(help.output);
    ASSERT_THAT(examples, Not(IsEmpty()));
    EXPECT_LT(help.output.find(examples.front()), help.output.find("Usage:"));
    std::istringstream lines(help.output);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
    const TemporaryFolder folder;
    folder.write("layers.json", R"({"format": "penstock-profile", "version": 1, "layers": [
        {"forward_ms": 1}, {"forward_ms": 2}]})");
    folder.write("model.pt", read_file(PENSTOCK_SOURCE_DIR "/tests/run/pipe/fixtures/tied_gpt.pt"));
    for (const std::string& example : examples) {
      const ProgramResult result = run_shell("cd '" + folder.path("") + "' && " + example);
      EXPECT_EQ(result.exit_status, 0) << example;
      EXPECT_EQ(result.errors, "") << example;
    }
  }
}

TEST(Version, IsOneLine) {
  const ProgramResult result = run_penstock({"--version"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, "penstock " PENSTOCK_VERSION "\n");
}

}  // namespace
}  // namespace penstock::testing
