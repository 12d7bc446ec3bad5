#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_program.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class InterruptedTraining : public TrainProgram {
 protected:
  // Trains without end, in front of `job=$!`, and runs `then` as soon as steps are logged.
  ProgramResult disturb(const std::string& options, const std::string& then) const {
    return run_shell("cd '" + folder_.path("") +
                     "'\nrm -f log.jsonl; timeout -s KILL 100 penstock train --data text.txt "
                     "--layers 1 --width 8 --heads 1 --context 8 --steps 1000000 --no-report "
                     "--log log.jsonl " +
                     options +
                     " & job=$!\n"
                     "until [ -s log.jsonl ]; do kill -0 $job || exit 99; sleep 0.01; done\n" +
                     then);
  }
};

TEST_F(InterruptedTraining, WritesItsCheckpointToAFolderOfItsOwn) {
  folder_.write("penstock-checkpoint/step-00000007/notes.txt", "another run");
  for (const char* transport : {"threads", "shm"}) {
    SCOPED_TRACE(transport);
    const std::string folder =
        std::string(transport) == "threads" ? "penstock-checkpoint-2" : "penstock-checkpoint-3";
    const ProgramResult result =
        disturb(std::string("--transport ") + transport, "kill -INT $job; wait $job");
    EXPECT_EQ(result.exit_status, 130) << result.errors;
    EXPECT_THAT(result.output, HasSubstr("'penstock train --resume --checkpoint " + folder +
                                         "' goes on from there"));
    const ProgramResult resumed =
        run("train --resume --checkpoint " + folder + " --no-report --sample 0 --steps 1");
    EXPECT_EQ(resumed.exit_status, 0) << resumed.errors;
    EXPECT_THAT(resumed.output, HasSubstr("going on from " + folder + "/step-"));
  }
  EXPECT_EQ(read_file(folder_.path("penstock-checkpoint/step-00000007/notes.txt")), "another run");
}

TEST_F(InterruptedTraining, EndsWithACheckpointWhenTheTerminalGoes) {
  const ProgramResult result = disturb("--checkpoint run", "kill -HUP $job; wait $job");
  EXPECT_EQ(result.exit_status, 129) << result.errors;
  EXPECT_FALSE(std::filesystem::is_empty(folder_.path("run")));
  // Started by nohup, it goes on until somebody else says otherwise.
  const ProgramResult ignored = run_shell(
      "cd '" + folder_.path("") +
      "'\ntrap '' HUP\npenstock train --data text.txt --layers 1 --width 8 "
      "--heads 1 --context 8 --steps 1000000 --no-report --checkpoint nohup --log nohup.jsonl & "
      "job=$!\n"
      "until [ -s nohup.jsonl ]; do sleep 0.01; done; kill -HUP $job\n"
      "lines=$(wc -l < nohup.jsonl); until [ $(wc -l < nohup.jsonl) -gt $((lines + 2)) ]; do kill "
      "-0 $job || exit 99; sleep 0.01; done\n"
      "kill -TERM $job; wait $job");
  EXPECT_EQ(ignored.exit_status, 143) << ignored.errors;
}

TEST_F(InterruptedTraining, GoesOnWhenNobodyReadsItsOutput) {
  for (const char* transport : {"threads", "shm"}) {
    SCOPED_TRACE(transport);
    const std::string options =
        "train --data text.txt --layers 2 --width 8 --heads 2 --context 8 "
        "--batch 8 --microbatches 4 --sample 0 --no-report --steps 30 "
        "--transport " +
        std::string(transport) + " --checkpoint " + transport;
    const ProgramResult result = run_shell("cd '" + folder_.path("") + "'; { penstock " + options +
                                           "; echo $? >status; } | head -n 1");
    EXPECT_EQ(read_file(folder_.path("status")), "0\n") << result.errors;
    EXPECT_EQ(result.errors, "");
    EXPECT_TRUE(std::filesystem::exists(
        folder_.path(std::string(transport) + "/step-00000030/manifest.json")));
  }
  EXPECT_THAT(run_shell("cd '" + folder_.path("") +
                        "'; penstock train --model mlp --steps 20 --no-report --log - "
                        "--checkpoint logged | head -n 1")
                  .errors,
              Not(HasSubstr("penstock:")));
  EXPECT_TRUE(std::filesystem::exists(folder_.path("logged/step-00000020")));
}

}  // namespace
}  // namespace penstock::testing
