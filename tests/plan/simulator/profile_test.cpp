#include "penstock/plan/simulator/profile.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::string with(const std::string& members) {
  return R"({"format": "penstock-profile", "version": 1, )" + members + "}";
}

std::string problem_of(const std::string& text) {
  try {
    read_profile(text, "costs.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no problem";
}

TEST(Profile, ReadsWhatItWrote) {
  Profile profile;
  profile.costs.hop_latency = Duration{601000};
  profile.costs.bytes_per_second = 25e9;
  profile.costs.overlap_factor = 0.9;
  profile.costs.stages = {{.forward = Duration{18522000},
                           .input_backward = Duration{18086000},
                           .weight_backward = Duration{9337001},
                           .full_backward = Duration{27000000},
                           .unshard = Duration{5},
                           .reduce_grad = Duration{7},
                           .activation_bytes = 123456789,
                           .weight_gradient_bytes = 1,
                           .parameter_bytes = 2,
                           .output_bytes = 3,
                           .input_gradient_bytes = 4},
                          {.forward = Duration{1}}};
  profile.layers = {
      {.name = "embedding", .forward = Duration{1000}, .pin = LayerCost::Pin::FirstStage},
      {.name = "head \"x\"", .backward = Duration{3}, .bytes = 9}};
  EXPECT_EQ(read_profile(write_profile(profile), "written"), profile);
}

TEST(Profile, TakesTheSumOfBothHalvesForAMissingFullBackward) {
  const Profile profile = read_profile(
      with(R"("stages": [{"forward_ms": 1, "input_backward_ms": 2, "weight_backward_ms": 0.5}])"),
      "costs.json");
  EXPECT_EQ(profile.costs.stages.front().full_backward, Duration{2500000});
}

TEST(Profile, RefusesASumThatItCouldNotReadAgain) {
  EXPECT_EQ(problem_of(with(R"("stages": [{"forward_ms": 1, "input_backward_ms": 1e9,
                                           "weight_backward_ms": 1}])")),
            "costs.json: stages[0]: the sum of input_backward_ms and weight_backward_ms is "
            "1000000001 ms; expected a time from 0 to 1000000000 ms");
}

TEST(Profile, NamesThePlaceOfAProblem) {
  EXPECT_EQ(problem_of("{"), "costs.json:1:2: not a JSON text");
  EXPECT_EQ(problem_of(R"({"hop_latency_ms": 1e999})"),
            "costs.json: a number is too large to be read");
  EXPECT_EQ(problem_of("[]"), "costs.json: expected an object");
  EXPECT_EQ(problem_of("{}"), "costs.json: format: expected \"penstock-profile\"");
  EXPECT_EQ(problem_of(R"({"format": "penstock-profile", "version": 2})"),
            "costs.json: version: expected 1");
  EXPECT_EQ(problem_of(with(R"("layers": [])")),
            "costs.json: layers: expected a list with at least one element");
  EXPECT_EQ(problem_of(with(R"("hop_latency_ms": 1)")),
            "costs.json: neither stages nor layers are given");
  EXPECT_EQ(problem_of(with(R"("stages": [{"forward_ms": 1, "input_backward_ms": 2}])")),
            "costs.json: stages[0].weight_backward_ms: missing");
  EXPECT_EQ(problem_of(with(R"("stages": [{"forward_ms": "1"}])")),
            "costs.json: stages[0].forward_ms: expected a number, found string");
  EXPECT_EQ(problem_of(with(R"("stages": [{"forward_ms": -1}])")),
            "costs.json: stages[0].forward_ms: expected a number that is not negative, found -1");
  EXPECT_EQ(problem_of(with(R"("stages": [{"forward": 1}])")),
            "costs.json: stages[0].forward: unknown member; did you mean \"forward_ms\"?");
  EXPECT_EQ(problem_of(with(R"("layers": [{"forward_ms": 1, "pin": "middle"}])")),
            "costs.json: layers[0].pin: expected \"first\" or \"last\", found \"middle\"");
  EXPECT_EQ(problem_of(with(R"("layers": [{"forward_ms": 1, "bytes": 1.5}])")),
            "costs.json: layers[0].bytes: expected a whole number of bytes up to "
            "9000000000000000, found 1.5");
}

TEST(Profile, ReadsTheExampleOfTheFormatPage) {
  std::ifstream file(PENSTOCK_SOURCE_DIR "/docs/formats/profile.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string fence = "```json\n";
  const std::size_t begin = page.find(fence) + fence.size();
  const Profile profile = read_profile(page.substr(begin, page.find("```", begin) - begin), "page");
  ASSERT_EQ(profile.costs.stages.size(), 2U);
  EXPECT_EQ(profile.costs.stages[1].full_backward, Duration{28600000});
}

TEST(Profile, SurvivesADeepNest) {
  EXPECT_THAT(problem_of(std::string(1000000, '[')), ::testing::HasSubstr("not a JSON text"));
  EXPECT_THAT(problem_of(std::string(1000000, '[') + std::string(1000000, ']')),
              ::testing::HasSubstr("expected an object"));
}

}  // namespace
}  // namespace penstock
