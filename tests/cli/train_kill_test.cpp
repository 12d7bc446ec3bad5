#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using ::testing::ContainsRegex;

constexpr const char* kTrain =
    "penstock train --data text.txt --layers 2 --width 8 --heads 2 --context 8 --batch 8 "
    "--microbatches 4 --dropout 0.1 --sample 0 --no-report ";

// A run whose checkpoints are in the folder `run`.
class KilledTraining : public ::testing::Test {
 protected:
  KilledTraining() {
    std::string text;
    for (int line = 0; line < 60; ++line) text += "pack my box with five dozen jugs\n";
    folder_.write("text.txt", text);
  }

  ProgramResult shell(const std::string& command) const {
    return run_shell("cd '" + folder_.path("") + "' && " + command);
  }

  // The steps of the newest checkpoint; 0 if there is none.
  int newest_step() const {
    int newest = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("run"))) {
      const std::string name = entry.path().filename();
      if (name.find('.') == std::string::npos) newest = std::max(newest, std::stoi(name.substr(5)));
    }
    return newest;
  }

  // The last step that a run has logged.
  int last_logged_step() const {
    int last = 0;
    if (!std::filesystem::exists(folder_.path("log.jsonl"))) return last;
    std::istringstream text(read_file(folder_.path("log.jsonl")));
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object()) last = std::max(last, json.at("step").get<int>());
    }
    return last;
  }

  // (step, loss) of every line of a log.
  std::vector<std::pair<int, double>> logged_losses(const std::string& name) const {
    std::vector<std::pair<int, double>> losses;
    std::istringstream text(read_file(folder_.path(name)));
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line);
      losses.emplace_back(json.at("step"), json.at("loss"));
    }
    return losses;
  }

  // The bytes of every tensor by name, whichever file they are in, and the optimizer's numbers.
  std::map<std::string, std::string> contents(const std::string& checkpoint) const {
    const auto manifest =
        nlohmann::json::parse(read_file(folder_.path(checkpoint + "/manifest.json")));
    std::map<std::string, std::string> bytes{{"optimizer", manifest.at("optimizer").dump()}};
    for (const auto& listed : manifest.at("files")) {
      const std::string file =
          read_file(folder_.path(checkpoint + "/" + listed.at("name").get<std::string>()));
      std::uint64_t length = 0;
      std::memcpy(&length, file.data(), sizeof(length));
      const std::size_t data = sizeof(length) + length;
      const auto header = nlohmann::json::parse(file.substr(sizeof(length), length));
      for (const auto& name : listed.at("entries")) {
        const auto& places = header.at(name.get<std::string>()).at("data_offsets");
        const auto begin = places.at(0).get<std::size_t>();
        bytes[name] = file.substr(data + begin, places.at(1).get<std::size_t>() - begin);
      }
    }
    return bytes;
  }

  // The last checkpoint of a run that was disturbed is that of one that was not, bit for bit.
  void expect_like_undisturbed(int num_steps) const {
    const std::string name = fmt::format("/step-{:08}", num_steps);
    const auto found = contents("run" + name);
    const auto expected = contents("undisturbed" + name);
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [entry, bytes] : expected) {
      EXPECT_TRUE(found.contains(entry) && found.at(entry) == bytes) << entry;
    }
  }

  const TemporaryFolder folder_;
};

// The number of kills; PENSTOCK_TEST_KILLS=50 is the whole test, which takes minutes.
int num_kills() {
  const char* const number = std::getenv("PENSTOCK_TEST_KILLS");
  return number == nullptr ? 6 : std::atoi(number);  // NOLINT(cert-err34-c): by hand
}

// Starts `train`, and kills some of its processes, all with SIGKILL, a moment after it has logged
// some steps more. Ends with the status of the first process when none of them is left, or with 99
// if one is.
std::string train_and_kill(const std::string& train, const std::string& victims, int num_steps,
                           double moment) {
  return fmt::format(
      "lines() {{ cat log.jsonl 2>/dev/null | wc -l; }}; before=$(lines); {} --log log.jsonl & "
      "first=$!\n"
      "while [ $(lines) -lt $((before + {})) ] && kill -0 $first 2>/dev/null; do sleep 0.01; done\n"
      "others=$(cat /proc/$first/task/$first/children); set -- $others; second=$1\n"
      "sleep {:.3f}; kill -9 {} 2>/dev/null; wait $first; status=$?\n"
      "is_there() {{ grep -qs 'State:.[^Z]' /proc/$1/status; }}\n"
      "for other in $others; do for i in $(seq 500); do is_there $other || break; sleep 0.01; "
      "done\n"
      "  is_there $other && exit 99; done; exit $status",
      train, num_steps, moment, victims);
}

// The run is far from its end, so that every kill meets it while it trains.
TEST_F(KilledTraining, EndsAsIfNothingHadHappened) {
  // The learning rate does not depend on the number of steps.
  const std::string train =
      std::string(kTrain) + "--lr-schedule constant --warmup 0 --checkpoint-every 2 ";
  const std::string resume = train + "--checkpoint run --resume --keep 2 ";
  const std::vector<std::string> ways = {"--ranks 2", "--ranks 4 --schedule zbv", "--ranks 1",
                                         "--ranks 3 --schedule gpipe",
                                         "--ranks 2 --schedule zb-h1 --transport shm"};
  std::mt19937 random(11);
  std::uniform_int_distribution<int> steps(1, 6);
  std::uniform_real_distribution<double> moments(0, 0.05);
  std::filesystem::create_directory(folder_.path("run"));
  int num_advances = 0;
  for (int kill = 0; kill < num_kills(); ++kill) {
    const std::string& way = ways[static_cast<std::size_t>(kill) % ways.size()];
    SCOPED_TRACE(way);
    const int before = newest_step();
    const int num_new_steps = steps(random);
    const ProgramResult result = shell(train_and_kill(resume + way + " --steps 10000000", "$first",
                                                      num_new_steps, moments(random)));
    ASSERT_EQ(result.exit_status, 128 + 9) << result.errors;
    const int after = newest_step();
    EXPECT_GE(after, before);
    // A step is logged after the checkpoint of the one before is there.
    EXPECT_TRUE(after > before || num_new_steps <= 2) << num_new_steps << " steps were logged";
    EXPECT_GE(after, last_logged_step() - 2) << "no more is lost than since the last checkpoint";
    if (after > before) ++num_advances;
  }
  RecordProperty("kills", num_kills());
  RecordProperty("advances", num_advances);
  const int num_steps = newest_step() + 4;
  const std::string end = fmt::format("--steps {} ", num_steps);
  const ProgramResult last = shell(resume + end + "--log log.jsonl");
  ASSERT_EQ(last.exit_status, 0) << last.errors;
  ASSERT_EQ(shell(train + end + "--checkpoint undisturbed --log undisturbed.jsonl").exit_status, 0);
  expect_like_undisturbed(num_steps);
  EXPECT_EQ(logged_losses("log.jsonl"), logged_losses("undisturbed.jsonl")) << "every step once";
}

TEST_F(KilledTraining, OfReplicasInProcessesEndsAsIfNothingHadHappened) {
  const int num_rounds = std::max(1, num_kills() / 6);
  const int num_steps = 80 * num_rounds;
  const std::string train = fmt::format(
      "{}--untied --data-parallel 2 --sharded --steps {} --checkpoint-every 2 ", kTrain, num_steps);
  const std::string usual = "--ranks 1 --transport shm ";
  ASSERT_EQ(shell(train + usual + "--checkpoint undisturbed").exit_status, 0);

  struct Case {
    const char* way;
    const char* victims;
    int exit_status;  // of the first process
  };
  const std::vector<Case> cases = {{"--ranks 1 --transport shm", "$second", 1},
                                   {"--ranks 1 --transport gloo", "$first", 128 + 9},
                                   {"--ranks 2 --transport shm", "$first $others", 128 + 9}};
  std::mt19937 random(5);
  std::uniform_int_distribution<int> steps(1, 6);
  std::uniform_real_distribution<double> moments(0, 0.05);
  std::filesystem::create_directory(folder_.path("run"));
  for (int round = 0; round < num_rounds; ++round) {
    for (const Case& one : cases) {
      SCOPED_TRACE(fmt::format("{}, killed {}", one.way, one.victims));
      const int before = newest_step();
      const ProgramResult result =
          shell(train_and_kill(train + one.way + " --checkpoint run --resume --keep 2", one.victims,
                               steps(random), moments(random)));
      EXPECT_EQ(result.exit_status, one.exit_status) << result.errors;
      if (one.exit_status == 1) {
        EXPECT_THAT(result.errors,
                    ContainsRegex("rank [1-3] \\(pid [0-9]+ at [0-9.]+\\) has died"));
      }
      EXPECT_GE(newest_step(), before);
      EXPECT_GE(newest_step(), last_logged_step() - 2);
    }
  }
  EXPECT_GT(newest_step(), 0) << "every kill came before the first checkpoint";
  const ProgramResult last = shell(train + usual + "--checkpoint run --resume --keep 2");
  ASSERT_EQ(last.exit_status, 0) << last.errors;
  expect_like_undisturbed(num_steps);
}

// Every process of a run holds its output open, so that the shell ends with the last of them.
TEST_F(KilledTraining, LeavesNothingBehindWhenInterruptedAtItsStart) {
  constexpr double kAtOnce = 20;  // seconds: less than ranks wait for one that is gone
  std::filesystem::create_directory(folder_.path("tmp"));
  for (const char* way : {"-s INT", "--foreground -s INT", "--foreground -s KILL"}) {
    for (const double moment : {0.4, 0.8, 1.2, 1.8}) {
      SCOPED_TRACE(fmt::format("timeout {} {}", way, moment));
      const auto begin = std::chrono::steady_clock::now();
      shell(fmt::format("TMPDIR=$PWD/tmp timeout {} {} {} --steps 1000000 --transport gloo", way,
                        moment, kTrain));
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      EXPECT_LT(seconds, kAtOnce);
      EXPECT_TRUE(std::filesystem::is_empty(folder_.path("tmp")));
    }
  }
}

// Trains in a folder `run` that has a file system of its own: first well, then after `change`. Who
// is not root becomes it in a namespace for that. Prints what the second run says, its status, and
// the checkpoints that are there then.
std::string two_runs(int bytes, const std::string& change, const std::string& arguments) {
  return fmt::format(
      "for own in -m -rm; do unshare $own true 2>/dev/null && break; done; mkdir run; "
      "unshare $own true 2>/dev/null || {{ echo skip; exit; }}; unshare $own sh -c '"
      "mount -t tmpfs -o size={} none run 2>/dev/null || {{ echo skip; exit; }}; "
      "{} --steps 2 --checkpoint run >/dev/null && {} && "
      "{} --steps 4 --checkpoint run --resume {} 2>&1 >/dev/null; echo status $?; ls run; "
      "penstock eval --checkpoint run --batch 4 --microbatches 2 >/dev/null && echo readable'",
      bytes, kTrain, change, kTrain, arguments);
}

TEST_F(KilledTraining, LeavesCheckpointsAloneOnAFullDisk) {
  const ProgramResult result =
      shell(two_runs(1'000'000, "head -c 2000000 /dev/zero >run/filler 2>/dev/null; true", ""));
  if (result.output == "skip\n") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(result.output,
              ContainsRegex("^penstock: run/step-00000004.partial-[^\n]*: No space left on device; "
                            "make room or choose another folder\nstatus 1\nfiller\n"
                            "step-00000002\nreadable\n$"));
}

// Before the first step: the log would tell of one.
TEST_F(KilledTraining, RefusesAReadOnlyFolderAtOnce) {
  const ProgramResult result =
      shell(two_runs(1'000'000, "mount -o remount,bind,ro run", "--log l"));
  if (result.output == "skip\n") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(result.output,
            "penstock: cannot write \"run\": Read-only file system; choose another folder with "
            "--checkpoint\nstatus 2\nstep-00000002\nreadable\n");
  EXPECT_EQ(read_file(folder_.path("l")), "");
}

}  // namespace
}  // namespace penstock::testing
