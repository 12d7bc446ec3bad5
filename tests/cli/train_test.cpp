#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/train_program.h"

namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(TrainProgram, HasTheSameLossesHoweverItRuns) {
  const std::vector<double> losses = expect_same_losses(
      "--steps 5 --dropout 0.1 ",
      {"--ranks 1", "--ranks 2", "--ranks 4 --schedule zbv", "--ranks 2 --schedule interleaved1f1b",
       "--ranks 2 --schedule search", "--ranks 2 --schedule gpipe --transport shm",
       "--ranks 4 --schedule dualpipev --transport shm",
       "--ranks 2 --schedule zb-h2 --transport gloo"});
  ASSERT_EQ(losses.size(), 5U);
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(TrainProgram, TellsHowItWentInPlainText) {
  const ProgramResult result = run(
      "train --data text.txt --layers 1 --width 8 --heads 1 --context 8 --steps 12 --log l.jsonl");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output,
              AllOf(StartsWith("model \"gpt\" with "), HasSubstr("text, 1 980 bytes\n"),
                    HasSubstr("1F1B: 2 ranks, 2 stages, 8 microbatches of 4 samples, threads\n"),
                    HasSubstr("step 1/12  loss "), HasSubstr("step 12/12  loss "),
                    HasSubstr("throughput "), HasSubstr("% of that bound"),
                    HasSubstr("peak memory"), HasSubstr("a sample of what it writes:\n| The "),
                    HasSubstr("report.html has the last step, measured and predicted\n")));
  EXPECT_THAT(result.output, Not(HasSubstr("\r")));
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(read_file(folder_.path("report.html")),
              AllOf(HasSubstr("<h1>Training gpt: 1F1B, 2 ranks, 8 microbatches, step 12</h1>"),
                    HasSubstr("1F1B, measured"), HasSubstr("1F1B, predicted")));
  const auto lines = log("l.jsonl");
  ASSERT_EQ(lines.size(), 12U);
  EXPECT_EQ(lines.back().at("step"), 12);
  for (const char* key : {"loss", "tokens_per_s", "lr", "norm", "bubble"}) {
    EXPECT_GT(lines.back().at(key).get<double>(), 0) << key;
  }
}

TEST_F(TrainProgram, ShowsABarOnATerminal) {
  const ProgramResult result = train_on_terminal(120);
  ASSERT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("\r["), HasSubstr("] step 12/12  loss "),
                                   HasSubstr("tokens/s"), HasSubstr("bubble ")));
}

// Leaves fields out from the right, rather than cut a number in two; nothing moves about.
TEST_F(TrainProgram, FitsTheTerminal) {
  const ProgramResult result = train_on_terminal(60);
  ASSERT_EQ(result.exit_status, 0) << result.output;
  std::istringstream shown(result.output);
  int num_bars = 0;
  std::size_t end_of_bar = 0;
  for (std::string text; std::getline(shown, text, '\r');) {
    const std::size_t end = text.find("\x1b[K");
    if (end == std::string::npos || end == 0) continue;
    ++num_bars;
    EXPECT_LT(end, 60U) << text;
    EXPECT_THAT(text.substr(0, end),
                MatchesRegex("\\[[# ]*\\] step +[0-9]+/12  loss +[0-9.]+  +[0-9.kM]+ tokens/s"
                             "(  +[-0-9:]+ left)?(  bubble +[0-9.]+ %)?"));
    if (num_bars == 1) end_of_bar = text.find(']');
    EXPECT_EQ(text.find(']'), end_of_bar) << text;
  }
  EXPECT_GT(num_bars, 0);
  const std::size_t table = result.output.find("rank stages");
  ASSERT_NE(table, std::string::npos) << result.output;
  std::istringstream rows(result.output.substr(table));
  for (std::string row; std::getline(rows, row);) EXPECT_LE(row.size(), 81U) << row;  // with \r
}

TEST_F(TrainProgram, SetsTheOptimizer) {
  const std::string sgd = "--optimizer sgd --lr-schedule constant --warmup 0 ";
  ASSERT_EQ(train(sgd + "--steps 4 --log plain.jsonl").exit_status, 0);
  ASSERT_EQ(train(sgd + "--steps 4 --momentum 0.9 --log momentum.jsonl").exit_status, 0);
  EXPECT_NE(losses("momentum.jsonl"), losses("plain.jsonl"));
  // A checkpoint keeps it.
  ASSERT_EQ(train(sgd + "--steps 2 --momentum 0.9 --checkpoint run --log r.jsonl").exit_status, 0);
  ASSERT_EQ(train("--steps 4 --checkpoint run --resume --log r.jsonl").exit_status, 0);
  EXPECT_EQ(losses("r.jsonl"), losses("momentum.jsonl"));
  ASSERT_EQ(train("--steps 4 --log adam.jsonl").exit_status, 0);
  ASSERT_EQ(train("--steps 4 --beta1 0.5 --beta2 0.9 --log betas.jsonl").exit_status, 0);
  EXPECT_NE(losses("betas.jsonl"), losses("adam.jsonl"));
  expect_refusal(train("--steps 1 --momentum 0.9"),
                 "AdamW has no option \"momentum\"; SGD and RMSprop have one");
}

TEST_F(TrainProgram, GivesStandardOutputToPrograms) {
  const ProgramResult log = train("--steps 2 --log -");
  ASSERT_EQ(log.exit_status, 0) << log.errors;
  std::istringstream lines(log.output);
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    EXPECT_EQ(nlohmann::json::parse(line).at("step"), num_lines + 1);
  }
  EXPECT_EQ(num_lines, 2);
  EXPECT_THAT(log.errors, HasSubstr("step 2/2  loss "));
  const ProgramResult report =
      run("train --data text.txt --layers 1 --width 8 --heads 1 --context 8 --steps 1 --report -");
  ASSERT_EQ(report.exit_status, 0) << report.errors;
  EXPECT_THAT(report.output, AllOf(StartsWith("<!DOCTYPE html>"), EndsWith("</html>\n")));
  EXPECT_THAT(report.errors, ContainsRegex("throughput +[1-9][0-9]* tokens/s"));  // of one step
  expect_refusal(run("train --log - --report -"),
                 "--log - and --report - cannot both have standard output; give one a file");
}

TEST_F(TrainProgram, SaysIfNobodyCouldHearIt) {
  for (const char* transport : {"threads", "shm"}) {
    const ProgramResult result =
        train(std::string("--steps 30 --transport ") + transport + " --log l.jsonl >/dev/full");
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_EQ(result.errors, "penstock: cannot write standard output: No space left on device\n");
    EXPECT_EQ(log("l.jsonl").size(), 30U);  // training is not lost with it
  }
}

TEST_F(TrainProgram, GoesOnFromACheckpointUnderAnotherSchedule) {
  ASSERT_EQ(train("--steps 6 --log whole.jsonl").exit_status, 0);
  ASSERT_EQ(train("--steps 6 --schedule zbv --checkpoint run --checkpoint-every 2 --keep 2 --log "
                  "a.jsonl")
                .exit_status,
            0);
  EXPECT_EQ(losses("a.jsonl"), losses("whole.jsonl"));
  std::filesystem::remove_all(folder_.path("run/step-00000006"));
  // As if it had been killed in the middle of a line.
  folder_.write("a.jsonl", read_file(folder_.path("a.jsonl")) + "{\"step\":7,\"lo");
  // The options come from the checkpoint.
  const ProgramResult resumed =
      run("train --checkpoint run --resume --ranks 3 --transport shm --no-report --log a.jsonl");
  ASSERT_EQ(resumed.exit_status, 0) << resumed.errors;
  EXPECT_THAT(resumed.output, HasSubstr("going on from run/step-00000004\n"));
  EXPECT_EQ(losses("a.jsonl"), losses("whole.jsonl"));  // every step once
  EXPECT_THAT(run("train --checkpoint run --resume --no-report").output,
              HasSubstr("all 6 steps are done already"));
  expect_refusal(train("--checkpoint run"),
                 "there are checkpoints in \"run\" already; give --resume to go on, or another "
                 "folder");
}

TEST_F(TrainProgram, SaysIfItGoesOnWithOtherData) {
  ASSERT_EQ(train("--steps 1 --checkpoint run").exit_status, 0);
  const std::string go_on = "train --checkpoint run --resume --no-report --steps ";
  EXPECT_THAT(run(go_on + "2").output, Not(HasSubstr("the data has changed")));
  folder_.write("text.txt", read_file(folder_.path("text.txt")) + "the end\n");
  EXPECT_THAT(run(go_on + "3").output, HasSubstr("the data has changed since then"));
}

TEST_F(TrainProgram, EvaluatesAndWritesTextFromACheckpoint) {
  ASSERT_EQ(train("--steps 3 --checkpoint run").exit_status, 0);
  const auto loss_of = [&](const std::string& arguments) {
    const ProgramResult result = run("eval --checkpoint run --json " + arguments);
    EXPECT_EQ(result.exit_status, 0) << result.errors;
    return nlohmann::json::parse(result.output).at("loss").get<double>();
  };
  const double loss = loss_of("");
  EXPECT_EQ(loss_of("--ranks 3"), loss);
  EXPECT_EQ(loss_of("--schedule zbv --transport shm"), loss);
  const ProgramResult text = run("generate-text --checkpoint run --tokens 12 --prompt box");
  ASSERT_EQ(text.exit_status, 0) << text.errors;
  EXPECT_THAT(text.output, StartsWith("box"));
  // Where the data is not, as on another machine.
  std::filesystem::rename(folder_.path("text.txt"), folder_.path("gone.txt"));
  EXPECT_EQ(run("generate-text --checkpoint run --tokens 12 --prompt box --ranks 1").output,
            text.output);
  EXPECT_EQ(run("generate-text --checkpoint run --tokens 12 --prompt box --transport gloo").output,
            text.output);
  std::filesystem::rename(folder_.path("gone.txt"), folder_.path("text.txt"));
  expect_refusal(run("eval --checkpoint nowhere"), "there is no checkpoint in \"nowhere\"");
}

TEST_F(TrainProgram, SaysWhyAModelCannotWriteText) {
  ASSERT_EQ(run("train --model mlp --steps 1 --no-report --checkpoint points").exit_status, 0);
  expect_refusal(run("generate-text --checkpoint points"),
                 "points/step-00000001: text is written token by token, but the model takes other "
                 "data");
  // As checkpoints were before they kept the sizes of tokens.
  ASSERT_EQ(train("--steps 1 --checkpoint run").exit_status, 0);
  const std::string manifest = read_file(folder_.path("run/step-00000001/manifest.json"));
  std::string old = manifest.substr(0, manifest.rfind(",\n  \"sha256\""));
  const std::size_t tokens = old.find("\"tokens\"");
  ASSERT_NE(tokens, std::string::npos) << manifest;
  old.replace(tokens, 8, "\"others\"");
  folder_.write("old", old);
  const ProgramResult rewritten = run_shell(
      "cd '" + folder_.path("") +
      "' && { cat old; printf ',\\n  \"sha256\": \"%s\"\\n}\\n' $(sha256sum <old | cut -d' ' -f1); "
      "} >run/step-00000001/manifest.json");
  ASSERT_EQ(rewritten.exit_status, 0) << rewritten.errors;
  expect_refusal(run("generate-text --checkpoint run"),
                 "run/step-00000001: an older Penstock has written it, which did not keep the "
                 "context and the vocabulary of the model; 'penstock train --resume' with a step "
                 "more writes one that has them");
}

TEST_F(TrainProgram, StopsWithACheckpointWhenInterrupted) {
  // A signal as soon as the first step is there, several times, as timeout(1) sends it; the pipe
  // ends with the program.
  for (const char* transport : {"threads", "shm"}) {
    SCOPED_TRACE(transport);
    const std::string name = std::string("run-") + transport;
    const ProgramResult result = run_shell(
        "cd '" + folder_.path("") + "' && mkfifo out-" + transport +
        "; timeout -s KILL 60 penstock train --data text.txt --layers 1 --width 8 --heads 1 "
        "--context 8 --steps "
        "1000000 "
        "--no-report --sample 0 --checkpoint " +
        name + " --transport " + transport + " --log " + name + ".jsonl > out-" + transport +
        " & job=$!; while read -r line; do "
        "case $line in step*) [ $sent ] || kill -INT $job $job; sent=1;; esac; "
        "echo \"$line\"; done < out-" +
        transport + "; wait $job");
    EXPECT_EQ(result.exit_status, 130) << result.errors;
    EXPECT_EQ(result.errors, "");
    EXPECT_THAT(result.output, HasSubstr("stopped after step "));
    const std::size_t num_steps = losses(name + ".jsonl").size();
    std::ostringstream step;
    step << name << "/step-" << std::setw(8) << std::setfill('0') << num_steps;
    EXPECT_THAT(result.output, HasSubstr(step.str() + " has the checkpoint"));
    EXPECT_TRUE(std::filesystem::exists(folder_.path(step.str() + "/manifest.json")));
  }
}

TEST_F(TrainProgram, TakesItsOptionsFromAFileToo) {
  folder_.write("run.json", R"({"data": ["text.txt"], "layers": 1, "width": 8, "heads": 1,
    "context": 8, "steps": 9, "no-report": true, "sample": 0, "lr": 0.01})");
  const ProgramResult result = run("train --config run.json --steps 2 --log l.jsonl");
  ASSERT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(losses("l.jsonl").size(), 2U);  // the command line wins
  EXPECT_EQ(log("l.jsonl").front().at("lr"), 0.01);
  folder_.write("wrong.json", R"({"stesp": 9})");
  expect_refusal(run("train --config wrong.json"),
                 "wrong.json: unknown key \"stesp\"; did you mean \"steps\"?");
  folder_.write("value.json", R"({"steps": "many"})");
  expect_refusal(run("train --config value.json"),
                 "value.json: steps: expected a whole number from 1 to 2147483647, found \"many\"");
  folder_.write("cut.json", "{\n\"steps\": 9");
  expect_refusal(run("train --config cut.json"),
                 "cut.json:2: not JSON; expected an object such as {\"steps\": 100}");
}

TEST_F(TrainProgram, TrainsOtherModels) {
  EXPECT_EQ(run("train --model mlp --layers 3 --steps 3 --no-report --schedule zb-h1").exit_status,
            0);
  EXPECT_EQ(
      run("train --model resnet --layers 3 --width 4 --batch 8 --steps 2 --no-report").exit_status,
      0);
  // A TorchScript file of words, and tokens for it.
  folder_.write("model.pt", read_file(PENSTOCK_SOURCE_DIR "/tests/run/pipe/fixtures/tied_gpt.pt"));
  std::string tokens;
  for (int index = 0; index < 400; ++index) tokens += {static_cast<char>(index * index % 7), '\0'};
  folder_.write("tokens.bin", tokens);
  const ProgramResult script =
      run("train --model model.pt --data tokens.bin --context 6 --steps 3 --no-report");
  EXPECT_EQ(script.exit_status, 0) << script.errors;
  // And a schedule of one's own.
  ASSERT_EQ(run("generate zb-h1 -p 3 -m 4 --output mine.csv").exit_status, 0);
  const ProgramResult custom =
      run("train --model mlp --schedule mine.csv --batch 8 --steps 2 --no-report");
  EXPECT_EQ(custom.exit_status, 0) << custom.errors;
  EXPECT_THAT(custom.output, HasSubstr("mine.csv: 3 ranks, 3 stages, 4 microbatches"));
}

TEST_F(TrainProgram, RefusesWithOneLine) {
  folder_.write("empty.txt", "");
  folder_.write("junk.pt", "no model");
  expect_refusal(run("train --data missing.txt"),
                 "cannot read \"missing.txt\": there is no such file or folder");
  expect_refusal(run("train --data empty.txt --context 8"),
                 "\"empty.txt\": it has 0 bytes of text, but a sample takes 9 with its target");
  EXPECT_THAT(run("train --model junk.pt").errors,
              AllOf(StartsWith("penstock: junk.pt: not a TorchScript file"), HasSubstr("save()")));
  expect_refusal(train("--batch 9"), "--batch: given more than once (see 'penstock train --help')");
  expect_refusal(run("train --batch 9"),
                 "a batch of 9 samples cannot be divided into 8 microbatches of one size; use a "
                 "multiple of 8, such as --batch 16");
  EXPECT_THAT(run("train --schedule 1f1c").errors, HasSubstr("unknown schedule \"1f1c\""));
  EXPECT_THAT(train("--optimizer adma").errors, HasSubstr("did you mean \"Adam\"?"));
  expect_refusal(run("train --model gtp"),
                 "unknown model \"gtp\"; expected gpt, mlp, resnet or a TorchScript file; did you "
                 "mean \"gpt\"?");
  std::filesystem::create_directory(folder_.path("emptydir"));
  expect_refusal(run("train --model emptydir"),
                 "emptydir: is a directory; expected a TorchScript file");
  expect_refusal(run("train --report nowhere/report.html"),
                 "cannot write \"nowhere/report.html\": No such file or directory; choose a place "
                 "with --report, or give --no-report");
  expect_refusal(run("train --report emptydir"),
                 "cannot write \"emptydir\": it is a directory; choose a place with --report, or "
                 "give --no-report");
  expect_refusal(train("--log nowhere/log.jsonl"),
                 "cannot write \"nowhere/log.jsonl\": No such file or directory");
  expect_refusal(train("--resume"), "--resume needs --checkpoint, the folder to go on from");
  expect_refusal(train("--steps 5 --warmup 5"),
                 "--warmup 5 leaves nothing of 5 steps to train with; use fewer");
  // Of several processes, one tells.
  expect_refusal(train("--transport shm --optimizer adma"),
                 "unknown optimizer \"adma\"; did you mean \"Adam\"?");
}

TEST_F(TrainProgram, RefusesOptionsThatContradictTheRun) {
  expect_refusal(train("--schedule forwardonly"),
                 "the schedule \"ForwardOnly\" has forwards alone, and nothing to train with; "
                 "choose another one of 'penstock list', or use 'penstock eval'");
  expect_refusal(
      train("--lr 0.001 --min-lr 0.01"),
      "--min-lr 0.01 is above --lr 0.001; the learning rate falls from --lr to --min-lr");
  EXPECT_THAT(train("--loss mse").errors, HasSubstr("these are classes; use cross-entropy"));
  ASSERT_EQ(train("--steps 1 --lr 0.0001 --checkpoint run").exit_status, 0);
  const std::string go_on = "train --checkpoint run --resume --no-report --sample 0 --steps 2 ";
  expect_refusal(run(go_on + "--optimizer sgd"),
                 "run/step-00000001 has the state of AdamW, which sgd cannot go on with; leave "
                 "--optimizer out, or start anew in another folder of --checkpoint");
  EXPECT_THAT(run(go_on + "--seed 9").output,
              HasSubstr("the seed was 1: with 9, batches and dropout differ from here on\n"));
}

TEST_F(TrainProgram, FindsAModelFileFromAnotherFolder) {
  folder_.write("here/model.pt",
                read_file(PENSTOCK_SOURCE_DIR "/tests/run/pipe/fixtures/tied_gpt.pt"));
  std::string tokens;
  for (int index = 0; index < 400; ++index) tokens += {static_cast<char>(index * index % 7), '\0'};
  folder_.write("here/tokens.bin", tokens);
  const ProgramResult trained = run_shell(
      "cd '" + folder_.path("here") +
      "' && penstock train --model model.pt --data tokens.bin --context 6 --steps 1 --no-report "
      "--checkpoint run");
  ASSERT_EQ(trained.exit_status, 0) << trained.errors;
  const ProgramResult result = run("eval --checkpoint here/run --batch 4 --microbatches 4");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

TEST_F(TrainProgram, LeavesDamagedCheckpointsAlone) {
  ASSERT_EQ(train("--steps 3 --checkpoint run").exit_status, 0);
  const std::string manifest = read_file(folder_.path("run/step-00000003/manifest.json"));
  folder_.write("run/step-00000003/manifest.json", manifest.substr(0, manifest.size() / 2));
  const ProgramResult cut = run("train --checkpoint run --resume --no-report");
  EXPECT_EQ(cut.exit_status, 2);
  EXPECT_THAT(cut.errors, HasSubstr("run/step-00000003/manifest.json"));
  folder_.write("run/step-00000003/manifest.json", manifest);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("run/step-00000003"))) {
    if (entry.path().extension() != ".safetensors") continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  }
  const ProgramResult damaged = run("eval --checkpoint run");
  EXPECT_EQ(damaged.exit_status, 2);
  EXPECT_THAT(damaged.errors, HasSubstr(".safetensors"));
}

TEST_F(TrainProgram, RefusesAPlaceForCheckpointsThatIsNone) {
  folder_.write("taken", "a file");
  expect_refusal(train("--steps 2 --checkpoint taken/run/here --checkpoint-every 1"),
                 "cannot write \"taken/run/here\": \"" + folder_.path("taken") +
                     "\" is not a directory; choose another folder with --checkpoint");
  EXPECT_EQ(train("--steps 1 --checkpoint new/one").exit_status, 0);
}

// Loading takes longer than most that is done afterwards. The dynamic linker tells of every program
// that it starts: `penstock` and, in its place, `penstock-run`.
TEST_F(TrainProgram, LoadsLibtorchOnce) {
  const ProgramResult result = run_shell(
      "LD_DEBUG=statistics penstock train --model nope 2>&1 | grep -c 'total startup time'");
  EXPECT_EQ(result.output, "2\n");
}

}  // namespace
}  // namespace penstock::testing
