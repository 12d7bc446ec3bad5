#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_program.h"

namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using TrainReplicas = TrainProgram;

TEST_F(TrainReplicas, HaveTheSameLossesAsThreadsAndProcesses) {
  const std::vector<double> losses =
      expect_same_losses("--steps 5 --dropout 0.1 --untied --data-parallel 2 ",
                         {"--ranks 1", "--ranks 2 --schedule zbv --sharded",
                          "--ranks 2 --transport shm", "--ranks 1 --sharded --transport gloo"});
  EXPECT_EQ(losses.size(), 5U);
}

TEST_F(TrainReplicas, TellHowTheyAreSpread) {
  folder_.write("run.json", R"({"data": ["text.txt"], "layers": 2, "width": 8, "heads": 1,
    "context": 8, "steps": 2, "no-report": true, "sample": 8, "data-parallel": 2, "sharded": true,
    "untied": true})");
  const ProgramResult sharded = run("train --config run.json");
  ASSERT_EQ(sharded.exit_status, 0) << sharded.errors;
  EXPECT_THAT(sharded.output,
              AllOf(HasSubstr("1F1B: 2 ranks, 2 stages, 8 microbatches of 4 samples, threads\n"
                              "2 replicas of the pipeline, "),
                    HasSubstr("activations gathered\n"), HasSubstr("what it writes:\n| The ")));
  EXPECT_THAT(train("--steps 1 --data-parallel 2").output,
              AllOf(HasSubstr("2 replicas of the pipeline, each with all parameters\n"),
                    Not(HasSubstr("gathered"))));
}

// Four replicas with one microbatch each add gradients in the order of one pipeline.
TEST_F(TrainReplicas, GoOnFromAndForARunWithoutThem) {
  ASSERT_EQ(train("--steps 6 --ranks 1 --untied --log whole.jsonl").exit_status, 0);
  const std::vector<double> whole = losses("whole.jsonl");
  const std::string go_on = "train --checkpoint run --resume --no-report ";
  ASSERT_EQ(
      train(
          "--steps 6 --untied --ranks 2 --schedule zbv --data-parallel 4 --sharded --transport shm "
          "--checkpoint run --checkpoint-every 2 --log a.jsonl")
          .exit_status,
      0);
  EXPECT_EQ(losses("a.jsonl"), whole);
  for (const char* step : {"4", "6"}) {
    std::filesystem::remove_all(folder_.path(std::string("run/step-0000000") + step));
  }
  const ProgramResult alone =
      run(go_on + "--ranks 1 --checkpoint-every 2 --log b.jsonl --sample 0");
  ASSERT_EQ(alone.exit_status, 0) << alone.errors;
  EXPECT_EQ(losses("b.jsonl"), std::vector<double>(whole.begin() + 2, whole.end()));
  std::filesystem::remove_all(folder_.path("run/step-00000006"));
  const ProgramResult sharded =
      run(go_on + "--ranks 1 --data-parallel 4 --sharded --log c.jsonl --sample 0");
  ASSERT_EQ(sharded.exit_status, 0) << sharded.errors;
  EXPECT_EQ(losses("c.jsonl"), std::vector<double>(whole.begin() + 4, whole.end()));
}

TEST_F(TrainReplicas, RefuseWithOneLine) {
  expect_refusal(train("--sharded"),
                 "--sharded spreads parameters over the replicas of --data-parallel, and there is "
                 "one; give --data-parallel 2 or more, or leave --sharded out");
  expect_refusal(train("--data-parallel 3"),
                 "4 microbatches cannot be divided among 3 replicas; use a multiple of 3, such as "
                 "--microbatches 6");
  expect_refusal(run("train --data-parallel 2 --microbatches 64"),
                 "a batch of 32 samples cannot be divided into 64 microbatches of one size; use a "
                 "multiple of 64, such as --batch 64");
  // Of several processes, one tells.
  expect_refusal(
      train("--data-parallel 2 --sharded --transport shm"),
      "no stage can be sharded: all parameters are in stages that share one, such as "
      "\"embedding.weight\"; use more ranks, give the head of a gpt weights of its own (--untied), "
      "or train without sharding");
  ASSERT_EQ(run("generate 1f1b -p 2 -m 4 --output mine.csv").exit_status, 0);
  expect_refusal(run("train --model mlp --schedule mine.csv --data-parallel 2 --microbatches 4"),
                 "the schedule \"mine.csv\" is for 4 microbatches, but each of the 2 replicas has "
                 "2; give --microbatches 8");
  EXPECT_THAT(run("train --data-parallel 0").errors, HasSubstr("--data-parallel: expected"));
}

TEST_F(TrainReplicas, RunInProcessesThatOthersHaveStarted) {
  const std::string options =
      " -- penstock train --data text.txt --layers 2 --width 8 --heads 2 --context 8 --batch 8 "
      "--microbatches 4 --sample 0 --no-report --steps 3 --ranks 2 --log launched.jsonl "
      "--data-parallel 2 ";
  const ProgramResult result = run("launch -n 4" + options + "--transport shm");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  ASSERT_EQ(train("--steps 3 --data-parallel 2 --log threads.jsonl").exit_status, 0);
  EXPECT_EQ(losses("launched.jsonl"), losses("threads.jsonl"));

  const ProgramResult small = run("launch -n 3" + options + "--transport shm");
  EXPECT_EQ(small.exit_status, 2);
  EXPECT_THAT(small.errors,
              HasSubstr("penstock: rank 2: WORLD_SIZE is 3, but 2 pipelines of 2 ranks take "
                        "4 processes; start as many\n"));
  const ProgramResult threads = run("launch -n 2" + options + "--transport threads");
  EXPECT_EQ(threads.exit_status, 2);
  EXPECT_THAT(threads.errors, HasSubstr("penstock: WORLD_SIZE is 2, but with --transport threads"));
}

}  // namespace
}  // namespace penstock::testing
