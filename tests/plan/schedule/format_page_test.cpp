// Runs the examples of docs/formats/schedule.md.

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/plan/schedule/json.h"

namespace penstock {
namespace {

std::string page() {
  std::ifstream file(PENSTOCK_SOURCE_DIR "/docs/formats/schedule.md", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The fenced block marked as `language`; empty if the page has none.
std::string block(const std::string& language) {
  const std::string text = page();
  const std::string fence = "\n```" + language + "\n";
  const std::size_t begin = text.find(fence);
  if (begin == std::string::npos) return "";
  const std::size_t first = begin + fence.size();
  return text.substr(first, text.find("```\n", first) - first);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(FormatPage, ActionsAreActions) {
  const std::vector<std::string> actions = lines_of(block("action"));
  ASSERT_THAT(actions, testing::SizeIs(4));
  for (const std::string& text : actions) {
    EXPECT_EQ(to_string(parse_action(text)), text);
  }
}

TEST(FormatPage, WhatIsNoActionIsRejected) {
  const std::vector<std::string> texts = lines_of(block("not-an-action"));
  ASSERT_THAT(texts, testing::SizeIs(8));
  for (const std::string& text : texts) {
    EXPECT_THROW(parse_action(text), ParseError) << text;
  }
}

TEST(FormatPage, CsvAndJsonAreOneSchedule) {
  const std::string csv = block("csv");
  const std::string json = block("json");
  const Schedule schedule = read_csv(csv, "schedule.md");
  EXPECT_EQ(read_json(json, "schedule.md"), schedule);
  EXPECT_EQ(write_csv(schedule), csv);
  EXPECT_EQ(write_json(schedule), json);
}

}  // namespace
}  // namespace penstock
