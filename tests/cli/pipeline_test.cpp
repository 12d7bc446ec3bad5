// Commands that feed each other: generate, lower, check.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kGpipe = "0F0,0B0\n1F0,1B0\n";
constexpr const char* kLoweredGpipe =
    "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
    "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n";

TEST(Lower, ReadsAFileOrStandardInput) {
  const TemporaryFolder folder;
  const ProgramResult from_file = run_penstock({"lower", folder.write("order.csv", kGpipe)});
  const ProgramResult from_stream = run_penstock({"lower", "-"}, kGpipe);
  EXPECT_EQ(from_file.exit_status, 0);
  EXPECT_EQ(from_file.output, kLoweredGpipe);
  EXPECT_EQ(from_stream.output, kLoweredGpipe);
}

TEST(Lower, EqualsGenerateWithLower) {
  for (const std::string name : {"1f1b", "interleavedzerobubble", "dualpipev"}) {
    const std::string generate = "penstock generate " + name + " -p 4 -m 8";
    const ProgramResult direct = run_shell(generate + " --lower");
    EXPECT_EQ(direct.exit_status, 0) << direct.errors;
    EXPECT_EQ(run_shell(generate + " | penstock lower -").output, direct.output) << name;
    EXPECT_EQ(run_shell(generate + " --format json | penstock lower -").output, direct.output)
        << name;
    EXPECT_EQ(run_shell(generate + " --crlf | penstock lower -").output, direct.output) << name;
  }
}

TEST(Lower, TakesTheOptionsOfThePasses) {
  const std::string order = "0F0,0I0,0W0\n";
  EXPECT_EQ(run_penstock({"lower", "-", "--no-sharding"}, order).output,
            "0F0,0I0,0W0,0REDUCE_GRAD\n");
  EXPECT_EQ(run_penstock({"lower", "-", "--no-sharding", "--merge-backwards"}, order).output,
            "0F0,0B0,0REDUCE_GRAD\n");
  EXPECT_EQ(run_penstock({"lower", "-", "--no-sharding", "--split-backwards"}, "0F0,0B0\n").output,
            "0F0,0I0,0W0,0REDUCE_GRAD\n");
}

TEST(Check, SaysWhatItProvedOfAComputeOrder) {
  const ProgramResult result = run_penstock({"check", "-"}, kGpipe);
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.output,
            "valid: compute order, 2 ranks, 2 stages, 1 microbatch\n"
            "proved: complete, in order, free of deadlock\n"
            "peak live activations per rank: 1 1\n");
}

TEST(Check, SaysWhatItProvedOfALoweredSchedule) {
  const ProgramResult result = run_penstock({"check", "-"}, kLoweredGpipe);
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output,
            "valid: lowered schedule, 2 ranks, 2 stages, 1 microbatch\n"
            "proved: complete, in order, sends matched with receives, free of deadlock under "
            "rendezvous and buffering\n"
            "peak live activations per rank: 1 1\n");
}

TEST(Check, AnswersNoWithEveryViolationOnStandardOutput) {
  const ProgramResult result = run_penstock({"check", "-"}, "0F0,0B0,0B1\n");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output, StartsWith("invalid: compute order, 1 rank, 1 stage, 2 microbatches"));
  EXPECT_THAT(result.output, HasSubstr("completeness: "));
}

TEST(Check, ExplainsADeadlockUnderRendezvousWithItsCycle) {
  const TemporaryFolder folder;
  // Both ranks send first: fine with buffers, stuck without.
  const std::string path = folder.write("crossed.csv",
                                        "0F0,0SEND_F0,0F1,2RECV_F0,0SEND_F1,2F0,2RECV_F1,2F1\n"
                                        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1\n");
  const ProgramResult good = run_penstock({"check", path});
  EXPECT_EQ(good.exit_status, 0) << good.output;
  const std::string crossed =
      "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2RECV_F1,2F1\n"
      "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1\n";
  const ProgramResult bad = run_penstock({"check", "-"}, crossed);
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_THAT(bad.output, HasSubstr("deadlock under rendezvous"));
  EXPECT_THAT(bad.output, HasSubstr("rank 0 waits at step 3 (0SEND_F1) for rank 1"));
  EXPECT_THAT(bad.output, HasSubstr("rank 1 waits at step 2 (1SEND_F0) for rank 0"));
}

TEST(Check, PrintsJson) {
  const ProgramResult valid = run_penstock({"check", "-", "--format", "json"}, kLoweredGpipe);
  EXPECT_EQ(valid.exit_status, 0);
  EXPECT_THAT(valid.output, StartsWith("{\n  \"valid\": true,\n  \"form\": \"lowered\""));
  const ProgramResult invalid = run_penstock({"check", "-", "--format", "json"}, "0F0,0B0,0B1\n");
  EXPECT_EQ(invalid.exit_status, 1);
  EXPECT_THAT(invalid.output, StartsWith("{\n  \"valid\": false,\n  \"form\": \"compute\""));
  EXPECT_THAT(invalid.output, HasSubstr("\"rule\": \"completeness\""));
}

TEST(Check, MissesStagesAndMicrobatchesThatMustBeThere) {
  EXPECT_EQ(run_penstock({"check", "-", "--microbatches", "2"}, kGpipe).exit_status, 1);
  EXPECT_EQ(run_penstock({"check", "-", "--stages", "3"}, kGpipe).exit_status, 1);
  EXPECT_EQ(run_penstock({"check", "-", "--stages", "2", "-m", "1"}, kGpipe).exit_status, 0);
}

TEST(Check, ListsNoMoreViolationsThanAsked) {
  const ProgramResult result =
      run_penstock({"check", "-", "--max-violations", "1"}, "0B0,0B1,0B2,0B3\n");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.output, HasSubstr(" more; raise --max-violations to see them\n"));
}

}  // namespace
}  // namespace penstock::testing
