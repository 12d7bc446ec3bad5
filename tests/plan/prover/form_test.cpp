#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/prover/check.h"
#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;

TEST(CheckForm, ReportsThatThereAreNoRanks) {
  EXPECT_THAT(violations_of(Schedule{}),
              ElementsAre("there are no ranks", "no rank computes anything"));
}

TEST(CheckForm, ReportsARankWithoutActions) {
  EXPECT_THAT(violations_of("0: 0F0 0B0\n1:\n"), ElementsAre("rank 1: has no actions"));
  EXPECT_THAT(violations_of("0: 0F0 0B0\n1: . .\n"), ElementsAre("rank 1: has no actions"));
}

TEST(CheckForm, ReportsThatNobodyComputes) {
  EXPECT_THAT(violations_of("0: 0UNSHARD 0RESHARD"), ElementsAre("no rank computes anything"));
}

TEST(CheckForm, ReportsACommunicationInsideOfAContainer) {
  EXPECT_THAT(violations_of("0: 0F0 (0F1;0UNSHARD)OVERLAP_F_B 0B0 0B1"),
              ::testing::Contains("rank 0, step 1 ((0F1;0UNSHARD)OVERLAP_F_B): a container holds "
                                  "computing actions only, not 0UNSHARD"));
}

// Actions that no text describes, but a program can build.
struct MalformedAction {
  std::string name;
  Action action;
};

class CheckMalformed : public ::testing::TestWithParam<MalformedAction> {};

TEST_P(CheckMalformed, IsReported) {
  const Action forward = {.stage = 0, .kind = ActionKind::Forward, .microbatch = 0};
  const Action backward = {.stage = 0, .kind = ActionKind::FullBackward, .microbatch = 0};
  const Schedule schedule = {.ranks = {{forward, GetParam().action, backward}}};
  EXPECT_THAT(check(schedule).violations,
              ::testing::Contains(::testing::Field(&Violation::rule, Rule::Form)));
}

std::vector<MalformedAction> malformed_actions() {
  constexpr int kTooLarge = std::numeric_limits<int>::max();
  const Action forward = {.stage = 0, .kind = ActionKind::Forward, .microbatch = 1};
  const Action backward = {.stage = 0, .kind = ActionKind::FullBackward, .microbatch = 1};
  const Action container = {.kind = ActionKind::Overlap, .parts = {backward}};
  return {
      {"NoStage", {.kind = ActionKind::Forward, .microbatch = 0}},
      {"NoMicrobatch", {.stage = 0, .kind = ActionKind::Forward}},
      {"NegativeStage", {.stage = -7, .kind = ActionKind::Forward, .microbatch = 0}},
      {"NegativeMicrobatch", {.stage = 0, .kind = ActionKind::Forward, .microbatch = -7}},
      {"StageTooLarge", {.stage = kTooLarge, .kind = ActionKind::Forward, .microbatch = 0}},
      {"MicrobatchTooLarge", {.stage = 0, .kind = ActionKind::Forward, .microbatch = kTooLarge}},
      {"UnshardWithoutStage", {.kind = ActionKind::Unshard}},
      {"UnshardWithMicrobatch", {.stage = 0, .kind = ActionKind::Unshard, .microbatch = 0}},
      {"EmptyContainer", {.kind = ActionKind::Overlap}},
      {"IdlePart", {.kind = ActionKind::Overlap, .parts = {forward, Action{}}}},
      {"NestedContainer", {.kind = ActionKind::Overlap, .parts = {forward, container}}},
      {"ContainerWithStage",
       {.stage = 0, .kind = ActionKind::Overlap, .parts = {forward, backward}}},
      {"PartsOfAForward",
       {.stage = 0, .kind = ActionKind::Forward, .microbatch = 1, .parts = {backward}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Form, CheckMalformed, ::testing::ValuesIn(malformed_actions()),
                         [](const auto& malformed) { return malformed.param.name; });

}  // namespace
}  // namespace penstock::testing
