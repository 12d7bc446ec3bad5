#include "penstock/plan/prover/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/generators/schedules.h"
#include "tests/support/listing.h"
#include "tests/support/violations.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Check, DescribesAComputeOrder) {
  const CheckReport report =
      check(parse_listing("0: 0F0 0F1 . 3F0 3B0 3F1 3B1 0B0 0B1\n"
                          "1: 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n"));
  EXPECT_TRUE(report.is_valid());
  EXPECT_FALSE(report.is_lowered);
  EXPECT_FALSE(report.is_forward_only);
  EXPECT_EQ(report.num_ranks, 2);
  EXPECT_EQ(report.num_stages, 4);
  EXPECT_EQ(report.num_microbatches, 2);
  EXPECT_EQ(report.placement, Placement({0, 1, 1, 0}));
}

TEST(Check, DescribesALoweredForwardOnlySchedule) {
  const CheckReport report = check(parse_listing("0: 0F0 0SEND_F0\n1: 1RECV_F0 1F0\n"));
  EXPECT_TRUE(report.is_valid());
  EXPECT_TRUE(report.is_lowered);
  EXPECT_TRUE(report.is_forward_only);
}

TEST(Check, ReportsEverythingAtOnce) {
  EXPECT_THAT(
      violations_of("0: 0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD\n"
                    "1: 1RECV_F0 1F0 1F0 1SEND_B0\n"
                    "2:\n"),
      ElementsAre("rank 2: has no actions", "rank 1, step 2 (1F0): 1F0 runs twice, first at step 1",
                  "rank 1: 1B0 is missing (or 1I0 and 1W0)",
                  "rank 1, step 0 (1RECV_F0): rank 0 never sends it (0SEND_F0 is missing)",
                  "rank 1, step 3 (1SEND_B0): rank 0 never receives it (0RECV_B0 is "
                  "missing)",
                  "rank 1, step 3 (1SEND_B0): nothing computes what it sends"));
}

TEST(Check, TellsTheRuleAndThePlace) {
  const CheckReport report = check(parse_listing("0: 0F0\n1: 1B0 1F0\n"));
  ASSERT_EQ(report.violations.size(), 2U);
  EXPECT_EQ(report.violations[0].rule, Rule::Completeness);
  EXPECT_EQ(report.violations[0].position, (Position{.rank = 0, .step = -1}));
  EXPECT_EQ(report.violations[0].action, "");
  EXPECT_EQ(report.violations[1].rule, Rule::Order);
  EXPECT_EQ(report.violations[1].position, (Position{.rank = 1, .step = 0}));
  EXPECT_EQ(report.violations[1].action, "1B0");
}

TEST(Check, KeepsNoMoreViolationsThanAsked) {
  const CheckReport report = check(parse_listing("0: 0F0 0F1 0F2 0F3 0B3"), {.max_violations = 2});
  EXPECT_EQ(report.num_violations, 3U);
  ASSERT_EQ(report.violations.size(), 2U);
  EXPECT_EQ(to_string(report.violations[1]), "rank 0: 0B1 is missing (or 0I1 and 0W1)");
}

TEST(Check, IsInvalidEvenIfNoViolationIsKept) {
  EXPECT_FALSE(check(parse_listing("0: 0F0 0I0"), {.max_violations = 0}).is_valid());
}

TEST(Check, AppliesOnlyTheRulesItIsAskedFor) {
  const char* listing = "0: 0B0 0F0 0F0 0REDUCE_GRAD 0REDUCE_GRAD";
  EXPECT_THAT(violations_of(listing, {.rules = {Rule::Order}}),
              ElementsAre("rank 0, step 0 (0B0): backward before its forward (0F0 is at step 1)"));
  EXPECT_THAT(violations_of(listing, {.rules = {Rule::Completeness}}),
              ElementsAre("rank 0, step 2 (0F0): 0F0 runs twice, first at step 1"));
  EXPECT_THAT(violations_of(listing, {.rules = {Rule::Reduction}}),
              ElementsAre("rank 0, step 4 (0REDUCE_GRAD): the gradients of stage 0 are reduced "
                          "already, at step 3"));
  EXPECT_THAT(violations_of(listing, {.rules = {Rule::Sharding}}), IsEmpty());
}

TEST(PeakActivationsOf, ForwardAndBackwardOfAStageAreItsLifetime) {
  EXPECT_THAT(check(parse_listing("0: 0F0 0F1 0B0 0F2 0B1 0B2\n"
                                  "1: 1F0 1B0 1F1 1I1 1F2 1W1 1B2\n"))
                  .peak_activations,
              ElementsAre(2, 2));
}

TEST(PeakActivationsOf, AContainerHoldsBothParts) {
  EXPECT_THAT(check(parse_listing("0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1")).peak_activations,
              ElementsAre(2));
  EXPECT_THAT(check(parse_listing("0: 0F0 (0B0;0F1)OVERLAP_F_B 0B1")).peak_activations,
              ElementsAre(2));
}

TEST(PeakActivationsOf, InferenceKeepsOneAtATime) {
  EXPECT_THAT(check(parse_listing("0: 0F0 0F1 0F2")).peak_activations, ElementsAre(1));
}

TEST(RequireValid, AcceptsAValidSchedule) {
  EXPECT_NO_THROW(require_valid(make_1f1b({.num_ranks = 2, .num_microbatches = 3})));
}

TEST(RequireValid, NamesTheFirstFiveViolations) {
  try {
    require_valid(parse_listing("0: 0F0 0F1 0F2 0F3 0F4 0F5 0F6 0B6"));
    FAIL() << "accepted";
  } catch (const ScheduleError& error) {
    EXPECT_STREQ(error.what(),
                 "invalid schedule: rank 0: 0B0 is missing (or 0I0 and 0W0); rank 0: 0B1 is "
                 "missing (or 0I1 and 0W1); rank 0: 0B2 is missing (or 0I2 and 0W2); rank 0: 0B3 "
                 "is missing (or 0I3 and 0W3); rank 0: 0B4 is missing (or 0I4 and 0W4); and 1 "
                 "more");
    EXPECT_EQ(error.report().violations.size(), 6U);
  }
}

TEST(RuleSet, IsAPlainSet) {
  constexpr RuleSet rules = {Rule::Form, Rule::Order};
  EXPECT_TRUE(rules.contains(Rule::Order));
  EXPECT_FALSE(rules.contains(Rule::Deadlock));
  EXPECT_TRUE(rules.without({Rule::Form, Rule::Order}).is_empty());
  EXPECT_FALSE(RuleSet::all().without(rules).contains(Rule::Form));
}

TEST(RuleName, IsOneWordPerRule) {
  EXPECT_EQ(rule_name(Rule::Form), "form");
  EXPECT_EQ(rule_name(Rule::Placement), "placement");
  EXPECT_EQ(rule_name(Rule::Completeness), "completeness");
  EXPECT_EQ(rule_name(Rule::Order), "order");
  EXPECT_EQ(rule_name(Rule::Communication), "communication");
  EXPECT_EQ(rule_name(Rule::Deadlock), "deadlock");
  EXPECT_EQ(rule_name(Rule::Sharding), "sharding");
  EXPECT_EQ(rule_name(Rule::Reduction), "reduction");
}

}  // namespace
}  // namespace penstock::testing
