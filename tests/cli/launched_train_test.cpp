#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_program.h"

namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// A program for `penstock launch`: penstock train, killed when `moment` is true of the folder.
std::string killed_train(const std::string& who, const std::string& moment,
                         const std::string& options) {
  return "sh -c 'if [ " + who + " ]; then (until [ " + moment +
         " ]; do sleep 0.01; done; kill -9 $$) & fi; exec penstock train --data text.txt --layers "
         "3 --width 8 --heads 2 --context 8 --batch 8 --microbatches 4 --sample 0 --no-report " +
         options + "'";
}

class LaunchedTraining : public TrainProgram {
 protected:
  // Trains on two ranks without end, until rank 1, a child of the program, gets the signal.
  ProgramResult disturb(const std::string& signal, const std::string& options) const {
    return run_shell(
        "cd '" + folder_.path("") +
        "'\npenstock train --data text.txt --layers 2 --width 8 --heads 2 --context 8 --batch 8 "
        "--microbatches 4 --sample 0 --no-report --steps 100000 --log log.jsonl " +
        options +
        " & parent=$!\n"
        "until [ -s log.jsonl ]; do sleep 0.01; done\n"
        "kill -" +
        signal + " $(cat /proc/$parent/task/$parent/children)\nwait $parent");
  }
};

TEST_F(LaunchedTraining, EachRankSaysWhoHasDied) {
  const ProgramResult result =
      run("launch -n 3 -- " + killed_train("$RANK = 0", "-s log.jsonl",
                                           "--ranks 3 --transport shm --steps 100000 --log "
                                           "log.jsonl"));
  EXPECT_EQ(result.exit_status, 128 + 9);
  for (const char* rank : {"1", "2"}) {
    EXPECT_THAT(result.errors,
                ContainsRegex(std::string("\\[") + rank + "\\] penstock: rank " + rank +
                              ": [^\n]*rank 0 \\(pid [0-9]+ at 127.0.0.1\\) has died"));
  }
}

TEST_F(LaunchedTraining, SaysWhyARankCannotJoin) {
  const std::string options = " penstock train --data text.txt --ranks 2 --transport gloo";
  const ProgramResult other_size = run_shell(
      "cd '" + folder_.path("") + "' && RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1" + options);
  expect_refusal(other_size,
                 "rank 1: WORLD_SIZE is 4, but 1 pipeline of 2 ranks take 2 processes; start as "
                 "many");
  const ProgramResult no_token = run_shell(
      "cd '" + folder_.path("") + "' && RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1" + options);
  expect_refusal(no_token,
                 "rank 1: ranks that meet at 10.0.0.1 need a token, so that nobody else can join; "
                 "set PENSTOCK_TOKEN to the same random text for all of them");
}

// The others are told by the process that has started them.
TEST_F(LaunchedTraining, SaysOnceWhatHappenedToRanksOfItsOwn) {
  const ProgramResult result = disturb("KILL", "--transport shm");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.errors,
              ContainsRegex("^penstock: rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has died[^\n]*\n$"));
}

// A rank that another one has started says nothing itself; what it has found is not lost. Now and
// then the model is cut elsewhere than it was, and rank 0 finds the same.
TEST_F(LaunchedTraining, QuotesARankOfItsOwnThatFailsBetweenSteps) {
  const std::string options = "--untied --transport shm --checkpoint run ";
  ASSERT_EQ(train(options + "--steps 2").exit_status, 0);
  const std::string second = "run/step-00000002/model-00002-of-00002.safetensors";
  const std::string whole = read_file(folder_.path(second));
  folder_.write(second, whole.substr(0, whole.size() - 1));
  for (const std::string command :
       {"train --resume --steps 3 --no-report --transport shm --checkpoint run",
        "eval --transport shm --checkpoint run"}) {
    const ProgramResult result = run(command);
    EXPECT_NE(result.exit_status, 0);
    EXPECT_THAT(result.errors,
                ContainsRegex("^penstock: ([^\n]*rank 1 \\(pid [0-9]+ at 127.0.0.1\\) has failed "
                              "outside of a step: )?" +
                              second + ": is damaged: it has [^\n]+\n$"));
  }
}

TEST_F(LaunchedTraining, HandsStandardInputToRanksOfItsOwn) {
  folder_.write("run.json", R"({"model": "mlp", "steps": 2, "no-report": true})");
  for (const char* command :
       {"penstock train --config - --transport shm < run.json",
        "cat run.json | penstock train --config - --transport shm",
        "penstock generate 1f1b -p 2 -m 8 | penstock train --config run.json --schedule /dev/stdin "
        "--transport shm"}) {
    const ProgramResult result =
        run_shell("cd '" + folder_.path("") + "' && timeout 50 sh -c '" + command + "'");
    EXPECT_EQ(result.exit_status, 0) << command << "\n" << result.errors;
  }
  const ProgramResult pipe = run_shell("cd '" + folder_.path("") +
                                       "' && mkfifo pipe && penstock train --schedule pipe "
                                       "--transport shm");
  expect_refusal(pipe, "\"pipe\" is a pipe, which only one of 2 processes can read; give a file");
}

TEST_F(LaunchedTraining, TellsTheFirstProcessWhyARankCannotJoin) {
  // As the first process starts it.
  const ProgramResult result =
      run("train --data missing.txt --transport shm --sibling-rank=1 --sibling-store=store");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(read_file(folder_.path("store")),
              HasSubstr("rank 1: cannot read \"missing.txt\": there is no such file"));
}

TEST_F(LaunchedTraining, NoticesARankThatDiesBeforeItJoins) {
  const ProgramResult result =
      run_shell("cd '" + folder_.path("") +
                "'\npenstock train --data text.txt --context 8 --transport shm --no-report & "
                "parent=$!\nchildren=/proc/$parent/task/$parent/children; "
                "until grep -q . $children; do sleep 0.01; done\n"
                "kill -9 $(cat $children); wait $parent");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.errors, ContainsRegex("^penstock: rank 1 \\(pid [0-9]+[^\n]*\n$"));
}

TEST_F(LaunchedTraining, ReachesEachRankInTheWayThatFits) {
  const std::string options =
      "train --data text.txt --layers 2 --width 8 --heads 2 --context 8 --batch 8 --microbatches 4 "
      "--sample 0 --no-report --steps 3 --log ";
  const ProgramResult launched = run("launch -n 2 -- penstock " + options + "auto.jsonl");
  ASSERT_EQ(launched.exit_status, 0) << launched.errors;
  EXPECT_THAT(launched.output, HasSubstr("4 microbatches of 2 samples, processes\n"));
  ASSERT_EQ(run(options + "started.jsonl --transport auto").exit_status, 0);
  ASSERT_EQ(run(options + "threads.jsonl").exit_status, 0);
  EXPECT_EQ(losses("auto.jsonl"), losses("threads.jsonl"));
  EXPECT_EQ(losses("started.jsonl"), losses("threads.jsonl"));
}

TEST_F(LaunchedTraining, WaitsAsLongAsItIsToldForRanksToJoin) {
  const ProgramResult result = run_shell(
      "cd '" + folder_.path("") +
      "' && RANK=0 WORLD_SIZE=2 PENSTOCK_STORE=store MASTER_ADDR=127.0.0.1 penstock train --data "
      "text.txt --context 8 --join-timeout 0.2 --no-report");
  expect_refusal(result, "rank 0: waited 0.2 s for rank 1 of 2 to join");
}

TEST_F(LaunchedTraining, StartsAgainFromTheLastCheckpoint) {
  const std::string options = "--ranks 2 --transport shm --steps 60 --checkpoint-every 10 ";
  ASSERT_EQ(run("launch -n 2 -- " + killed_train("0 = 1", "0 = 1", options + "--checkpoint whole"))
                .exit_status,
            0);
  const ProgramResult result =
      run("launch -n 2 --max-restarts 1 -- " + killed_train("$RANK$PENSTOCK_RESTARTS = 10",
                                                            "-e run/step-00000010",
                                                            options + "--checkpoint run --resume"));
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("starting all ranks again, restart 1 of 1"));
  EXPECT_THAT(result.output, ContainsRegex("\\[0\\] going on from run/step-0000"));
  // Where a model is cut is a matter of measured times; one rank writes it to the same files.
  for (const std::string folder : {"whole", "run"}) {
    ASSERT_EQ(
        run("train --resume --ranks 1 --steps 61 --sample 0 --no-report --checkpoint " + folder)
            .exit_status,
        0);
  }
  const ProgramResult difference =
      run_shell("cd '" + folder_.path("") + "' && diff -r whole/step-00000061 run/step-00000061");
  EXPECT_EQ(difference.exit_status, 0) << difference.output;
}

// As on two hosts: each launcher starts its own rank again, one of them earlier than the other.
TEST_F(LaunchedTraining, StartsAgainOverHosts) {
  const std::string program =
      killed_train("$RANK$PENSTOCK_RESTARTS = 10", "-e run/step-00000010",
                   "--ranks 2 --transport gloo --steps 60 --checkpoint-every "
                   "10 --checkpoint run --resume");
  const ProgramResult result = run_shell(
      "cd '" + folder_.path("") +
      "'; export PENSTOCK_TOKEN=secret\n"
      "port=$(penstock launch -n 1 -- printenv MASTER_PORT | sed 's/.* //')\n"
      "node() { timeout 120 penstock launch -n 1 --nodes 2 --node-rank $1 --master-addr 127.0.0.1 "
      "--master-port $port --grace 0.1 --max-restarts 1 -- " +
      program + "; }\nnode 0 & first=$!; node 1; second=$?; wait $first; exit $(($? + second))");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_THAT(result.output, ContainsRegex("\\[0\\] going on from run/step-0000"));
}

TEST_F(LaunchedTraining, GivesUpASilentRankAtTheDeadline) {
  const ProgramResult result = disturb("STOP", "--transport gloo --deadline 1 --replay stall.json");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("no progress for 1 s"),
                                   ContainsRegex("rank 1 \\(pid [0-9]+ at 127.0.0.1\\) does not "
                                                 "answer")));
  const auto replay = nlohmann::json::parse(read_file(folder_.path("stall.json")));
  EXPECT_EQ(replay.at("ranks")[1].at("state"), "silent");
}

TEST_F(LaunchedTraining, RefusesDeadlinesAndReplaysThatMakeNoSense) {
  const ProgramResult deadline = train("--transport shm --deadline 0");
  EXPECT_EQ(deadline.exit_status, 2);
  EXPECT_THAT(deadline.errors, HasSubstr("--deadline: expected seconds from 0.001 to 1000000, "
                                         "found \"0\""));
  expect_refusal(train("--replay stall.json"),
                 "--replay is for ranks that are processes; give --transport shm or gloo, or leave "
                 "it out");
  expect_refusal(run("bench step --replay stall.json"),
                 "--replay is for ranks that are processes; give --transport shm or gloo, or leave "
                 "it out");
  EXPECT_THAT(run("bench step --help").output, HasSubstr("--deadline SECONDS"));
}

}  // namespace
}  // namespace penstock::testing
