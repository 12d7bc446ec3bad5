// Whatever is wrong, the program says so in one line on standard error and prints no result.

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Expects one line that contains `problem`, nothing else, and `exit_status`.
void expect_refused(const ProgramResult& result, const std::string& problem, int exit_status = 2) {
  EXPECT_EQ(result.exit_status, exit_status) << result.errors;
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, StartsWith("penstock: "));
  EXPECT_THAT(result.errors, HasSubstr(problem));
  EXPECT_THAT(result.errors, EndsWith("\n"));
  EXPECT_EQ(result.errors.find('\n'), result.errors.size() - 1) << result.errors;
}

std::vector<std::string> generate_with(const std::string& option, const std::string& value) {
  std::vector<std::string> arguments = {"generate", "interleaved1f1b"};
  for (const char* count : {"--ranks", "--microbatches", "--stages-per-rank"}) {
    arguments.emplace_back(count);
    arguments.push_back(option == count ? value : "2");
  }
  return arguments;
}

// Of all programs this test has run; unlike a clock, it does not count the load of the machine.
std::chrono::seconds processor_time_of_programs() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
}

TEST(BadCommandLine, UnknownCommandGetsTheNearest) {
  expect_refused(run_penstock({"genrate"}),
                 R"(unknown command "genrate"; did you mean "generate"?)");
  expect_refused(run_penstock({"foo"}),
                 R"(unknown command "foo"; expected one of list, generate, lower, check)");
}

TEST(BadCommandLine, NoCommand) {
  expect_refused(run_penstock({}), "expected a command, one of list, generate, lower, check");
}

TEST(BadCommandLine, UnknownOptionGetsTheNearest) {
  expect_refused(run_penstock({"generate", "1f1b", "--rnks", "4", "-m", "8"}),
                 R"(unknown option "--rnks"; did you mean "--ranks"?)");
}

TEST(BadCommandLine, ExtraArgument) {
  expect_refused(run_penstock({"list", "all"}), R"(unexpected argument "all")");
}

TEST(BadCommandLine, MissingArgumentsAndValues) {
  expect_refused(run_penstock({"generate"}), "name is required (see 'penstock generate --help')");
  expect_refused(run_penstock({"generate", "1f1b", "-p", "4"}), "--microbatches is required");
  expect_refused(run_penstock({"generate", "1f1b", "-p"}), "--ranks: expected a value");
  expect_refused(run_penstock({"lower"}), "file is required");
}

TEST(BadCommandLine, RepeatedOptionAndFlagWithAValue) {
  expect_refused(run_penstock({"generate", "1f1b", "-p", "4", "-p", "5", "-m", "8"}),
                 "--ranks: given more than once");
  expect_refused(run_penstock({"generate", "1f1b", "-p", "4", "-m", "8", "--lower=x"}),
                 "--lower: takes no value");
}

TEST(BadCommandLine, UnknownScheduleGetsTheNearest) {
  expect_refused(run_penstock({"generate", "1fb1", "-p", "4", "-m", "8"}),
                 R"(unknown schedule "1fb1"; did you mean "1F1B"?)");
}

TEST(BadCommandLine, UnknownFormatGetsTheChoices) {
  expect_refused(run_penstock({"generate", "1f1b", "-p", "4", "-m", "8", "--format", "jsn"}),
                 R"(--format: expected csv, table or json, found "jsn"; did you mean "json"?)");
  expect_refused(run_penstock({"check", "-", "--format", "csv"}),
                 R"(--format: expected text or json, found "csv")");
}

TEST(BadCommandLine, CountsAreWholeNumbersFromOne) {
  for (const std::string option : {"--ranks", "--microbatches", "--stages-per-rank"}) {
    for (const std::string value : {"0", "-1", "x", "1.5", "4x", "", "99999999999999999999"}) {
      expect_refused(
          run_penstock(generate_with(option, value)),
          option + ": expected a whole number from 1 to 2147483647, found \"" + value + "\"");
    }
  }
}

TEST(BadCommandLine, AbsurdCountsAreRefusedAtOnce) {
  for (const std::string option : {"--ranks", "--microbatches", "--stages-per-rank"}) {
    expect_refused(run_penstock(generate_with(option, "2147483647")), "too large");
  }
}

TEST(BadCommandLine, ShapesThatAScheduleDoesNotHave) {
  expect_refused(run_penstock({"generate", "1f1b", "-p", "4", "-m", "8", "-v", "2"}), "1F1B");
  expect_refused(run_penstock({"generate", "vshaped", "-p", "4", "-m", "8"}), "2 ranks only");
}

TEST(BadFile, MissingFileAndDirectory) {
  const TemporaryFolder folder;
  for (const std::string command : {"lower", "check"}) {
    expect_refused(run_penstock({command, folder.path("no.csv")}), "No such file or directory");
    expect_refused(run_penstock({command, folder.path("")}), "it is a directory");
    expect_refused(run_penstock({command, folder.path("two\nlines.csv")}), "two\\x0alines.csv");
  }
}

TEST(BadFile, EmptyFile) {
  expect_refused(run_penstock({"check", "-"}, ""), "standard input:1:1: no ranks");
}

TEST(BadFile, TruncatedFileNamesLineAndColumn) {
  const TemporaryFolder folder;
  const std::string path = folder.write("cut.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1");
  expect_refused(run_penstock({"check", path}), path + ":2:14: ");
  const std::string json = R"({"format": "penstock-schedule", "version": 1, "ranks": [["0F0", )";
  expect_refused(run_penstock({"check", "-"}, json), "standard input:1:");
}

TEST(BadFile, CellThatIsNoAction) {
  expect_refused(run_penstock({"lower", "-"}, "0F0,2BW0\n"), R"(standard input:1:7: )");
  expect_refused(run_penstock({"check", "-"}, "0F0,0X0\n"), R"("0X0")");
}

TEST(BadFile, IdleSlotInALoweredSchedule) {
  expect_refused(run_penstock({"check", "-"}, "0F0,,0SEND_F0\n1RECV_F0,1F0\n"),
                 "standard input:1:5: idle slot in a lowered schedule");
}

TEST(BadFile, LoweringTwice) {
  expect_refused(run_penstock({"lower", "-"}, "0UNSHARD,0F0\n"), "the schedule is lowered already");
}

TEST(BadFile, LoweringAnInvalidScheduleIsANo) {
  expect_refused(run_penstock({"lower", "-"}, "0F0,0B0,0B1\n"), "invalid schedule: ", 1);
}

TEST(BadFile, HundredMegabytesOfGarbageAreRefusedQuickly) {
  constexpr std::size_t kSize = 100'000'000;
  const std::chrono::seconds begin = processor_time_of_programs();
  std::string noise(kSize, '\0');
  unsigned state = 1;
  for (char& letter : noise) {
    state = state * 1664525U + 1013904223U;
    letter = static_cast<char>(state >> 24U);
  }
  expect_refused(run_penstock({"check", "-"}, noise), "standard input:1:");
  expect_refused(run_penstock({"check", "-"}, std::string(kSize, '1')), "standard input:1:1: ");
  expect_refused(run_penstock({"lower", "-"}, std::string(kSize, '{')), "standard input:1:");
  // Far from what it takes; a reader that is not linear would be at it for hours.
  EXPECT_LT(processor_time_of_programs() - begin, std::chrono::seconds(30));
}

TEST(BadOutput, FullDeviceAndClosedStream) {
  const ProgramResult full = run_shell("penstock list > /dev/full");
  expect_refused(full, "cannot write standard output: No space left on device");
  expect_refused(run_shell("penstock --help > /dev/full"), "cannot write standard output");
  expect_refused(run_shell("penstock list >&-"), "cannot write standard output");
}

TEST(BadOutput, FolderThatIsMissingOrNoFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "kept\n");
  const std::vector<std::string> generate = {"generate", "gpipe", "-p", "2", "-m", "2", "--output"};
  for (const std::string& path : {folder.path("missing/order.csv"), file + "/order.csv"}) {
    std::vector<std::string> arguments = generate;
    arguments.push_back(path);
    expect_refused(run_penstock(arguments), "cannot write \"" + path + "\"");
  }
  std::vector<std::string> onto_folder = generate;
  onto_folder.push_back(folder.path(""));
  expect_refused(run_penstock(onto_folder), "it is a directory");
  EXPECT_THAT(folder.names(), ElementsAre("file"));
  EXPECT_EQ(read_file(file), "kept\n");
}

TEST(BadOutput, FailureKeepsTheFileThatWasThere) {
  const TemporaryFolder folder;
  const std::string path = folder.write("order.csv", "kept\n");
  expect_refused(run_penstock({"lower", "-", "--output", path}, "0F0,0B0,0B1\n"), "invalid", 1);
  // No file may grow beyond zero bytes: the draft fails in the middle.
  const ProgramResult result = run_shell(
      "trap '' XFSZ; ulimit -f 0; penstock generate gpipe -p 2 -m 2 "
      "--output '" +
      path + "'");
  expect_refused(result, "cannot write");
  EXPECT_EQ(read_file(path), "kept\n");
  EXPECT_THAT(folder.names(), ElementsAre("order.csv"));
}

TEST(BadOutput, DeviceIsWrittenToAndNotReplaced) {
  const ProgramResult result =
      run_shell("penstock generate gpipe -p 1 -m 1 --output /dev/stdout | cat");
  EXPECT_EQ(result.output, "0F0,0B0\n");
  expect_refused(run_penstock({"generate", "gpipe", "-p", "1", "-m", "1", "-o", "/dev/full"}),
                 "No space left on device");
}

}  // namespace
}  // namespace penstock::testing
