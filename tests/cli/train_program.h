#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {

// A model that takes no time, on a text of its own.
class TrainProgram : public ::testing::Test {
 protected:
  TrainProgram() {
    std::string text;
    for (int line = 0; line < 60; ++line) text += "pack my box with five dozen jugs\n";
    folder_.write("text.txt", text);
  }

  // Runs `penstock` and what follows, in a folder of its own.
  ProgramResult run(const std::string& arguments) const {
    return run_shell("cd '" + folder_.path("") + "' && penstock " + arguments);
  }
  ProgramResult train(const std::string& arguments) const {
    return run(
        "train --data text.txt --layers 2 --width 8 --heads 2 --context 8 --batch 8 "
        "--microbatches 4 --sample 0 --no-report " +
        arguments);
  }
  // The same on a terminal of so many columns, with a model that is smaller still.
  ProgramResult train_on_terminal(int columns) const {
    return run_shell("cd '" + folder_.path("") + "' && script -qec 'stty cols " +
                     std::to_string(columns) +
                     "; penstock train --data text.txt --layers 1 --width 8 --heads 1 --context 8 "
                     "--steps 12 --no-report --sample 0' /dev/null");
  }
  // What a run has logged, line by line.
  std::vector<nlohmann::json> log(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(folder_.path(name)));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::vector<double> losses(const std::string& name) const {
    std::vector<double> values;
    for (const auto& line : log(name)) values.push_back(line.at("loss"));
    return values;
  }
  // Trains in each of these ways, with the same options besides. Returns the losses of all.
  std::vector<double> expect_same_losses(const std::string& options,
                                         const std::vector<std::string>& ways) const {
    std::vector<double> expected;
    for (const std::string& way : ways) {
      SCOPED_TRACE(way);
      const ProgramResult result = train(options + way + " --log way.jsonl");
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_EQ(result.errors, "");
      if (expected.empty()) expected = losses("way.jsonl");
      EXPECT_EQ(losses("way.jsonl"), expected);
    }
    return expected;
  }

  const TemporaryFolder folder_;
};

// One line, and the status of a wrong question.
inline void expect_refusal(const ProgramResult& result, const std::string& message) {
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.errors, "penstock: " + message + "\n");
}

}  // namespace penstock::testing
