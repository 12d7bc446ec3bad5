#include "penstock/plan/schedule/action.h"

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "tests/plan/schedule/parse_failure_of.h"
#include "tests/plan/schedule/random_schedule.h"

namespace penstock {
namespace {

template <typename Case>
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.name);
}

Action simple(int stage, ActionKind kind, int microbatch = Action::kNone) {
  return {.stage = stage, .kind = kind, .microbatch = microbatch};
}

Action container(std::vector<Action> parts) {
  return {.kind = ActionKind::Overlap, .parts = ActionParts(std::move(parts))};
}

const Action kForward = simple(2, ActionKind::Forward, 0);
const Action kBackward = simple(7, ActionKind::FullBackward, 1);

struct AcceptedCase {
  std::string_view name;
  std::string_view text;
  Action action;
  std::string_view printed;

  friend void PrintTo(const AcceptedCase& accepted, std::ostream* out) { *out << accepted.name; }
};

class AcceptedAction : public testing::TestWithParam<AcceptedCase> {};

TEST_P(AcceptedAction, ParsesAndPrintsCanonically) {
  const auto& [name, text, action, printed] = GetParam();
  EXPECT_EQ(parse_action(text), action);
  EXPECT_EQ(to_string(action), printed);
  EXPECT_EQ(parse_action(printed), action);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, AcceptedAction,
    testing::Values(
        AcceptedCase{"Plain", "2F0", kForward, "2F0"},
        AcceptedCase{"SpacesAround", "  2F0 ", kForward, "2F0"},
        AcceptedCase{"TabsAround", "\t2F0\t ", kForward, "2F0"}, AcceptedCase{"Empty", "", {}, ""},
        AcceptedCase{"Blank", " \t ", {}, ""},
        AcceptedCase{"LeadingZeros", "00F01", simple(0, ActionKind::Forward, 1), "0F1"},
        AcceptedCase{"ManyLeadingZeros", "00000000000000000000000002F0", kForward, "2F0"},
        AcceptedCase{"FullBackward", "7B1", kBackward, "7B1"},
        AcceptedCase{"InputBackward", "3I4", simple(3, ActionKind::InputBackward, 4), "3I4"},
        AcceptedCase{"WeightBackward", "3W4", simple(3, ActionKind::WeightBackward, 4), "3W4"},
        AcceptedCase{"SendF", "3SEND_F1", simple(3, ActionKind::SendForward, 1), "3SEND_F1"},
        AcceptedCase{"RecvF", "3RECV_F1", simple(3, ActionKind::ReceiveForward, 1), "3RECV_F1"},
        AcceptedCase{"SendB", "3SEND_B1", simple(3, ActionKind::SendBackward, 1), "3SEND_B1"},
        AcceptedCase{"RecvB", "3RECV_B1", simple(3, ActionKind::ReceiveBackward, 1), "3RECV_B1"},
        AcceptedCase{"Unshard", "1UNSHARD", simple(1, ActionKind::Unshard), "1UNSHARD"},
        AcceptedCase{"Reshard", "1RESHARD", simple(1, ActionKind::Reshard), "1RESHARD"},
        AcceptedCase{"ReduceGrad", "1REDUCE_GRAD", simple(1, ActionKind::ReduceGrad),
                     "1REDUCE_GRAD"},
        AcceptedCase{"Container", "(2F0;7B1)OVERLAP_F_B", container({kForward, kBackward}),
                     "(2F0;7B1)OVERLAP_F_B"},
        AcceptedCase{"BlanksAroundParts", "\t( 2F0 ;\t7B1 )OVERLAP_F_B ",
                     container({kForward, kBackward}), "(2F0;7B1)OVERLAP_F_B"},
        AcceptedCase{"ContainerOfOneLoweredAction", "(1UNSHARD)OVERLAP_F_B",
                     container({simple(1, ActionKind::Unshard)}), "(1UNSHARD)OVERLAP_F_B"},
        AcceptedCase{"LargestIndices", "2147483646F2147483646",
                     simple(Action::kLargestIndex, ActionKind::Forward, Action::kLargestIndex),
                     "2147483646F2147483646"}),
    name_of<AcceptedCase>);

struct RejectedCase {
  std::string_view name;
  std::string_view text;
  int column;
  std::string problem;

  friend void PrintTo(const RejectedCase& rejected, std::ostream* out) { *out << rejected.name; }
};

class RejectedAction : public testing::TestWithParam<RejectedCase> {};

TEST_P(RejectedAction, NamesColumnAndProblem) {
  const auto failure = parse_failure_of([] { return parse_action(GetParam().text); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->problem(), GetParam().problem);
  EXPECT_EQ(failure->column(), GetParam().column);
  EXPECT_EQ(failure->line(), 1);
}

std::string unknown(const std::string& quoted) {
  return "unknown action " + quoted + "; expected <stage><kind><microbatch>, for example 2F0";
}

const std::string kContainerShape =
    "; expected (<action>;<action>)OVERLAP_F_B, for example (0F3;7B1)OVERLAP_F_B";

// torch.distributed.pipelining accepts some of these and drops what it does not understand.
INSTANTIATE_TEST_SUITE_P(
    Simple, RejectedAction,
    testing::Values(
        RejectedCase{"UnknownKind", "2X0", 2, unknown(R"("2X0")")},
        RejectedCase{"LowerCase", "1f0", 2, unknown(R"("1f0")")},
        RejectedCase{"Negative", "-1F0", 1, unknown(R"("-1F0")")},
        RejectedCase{"NumberAlone", "12", 3, unknown(R"("12")")},
        RejectedCase{"UnfinishedKind", "1SEND_0", 2, unknown(R"("1SEND_0")")},
        RejectedCase{"NonAsciiStage", "\u0663F0", 1, unknown(R"("\xd9\xa3F0")")},
        RejectedCase{"LineFeed", "\n2F0", 1, unknown(R"("\x0a2F0")")},
        RejectedCase{"NonAsciiMicrobatch", "1F\u0663", 3,
                     R"(expected a microbatch number after "1F", found "\xd9\xa3")"},
        RejectedCase{
            "NoStage", " F0", 2,
            R"(stage missing in "F0"; expected <stage><kind><microbatch>, for example 2F0)"},
        RejectedCase{"NoMicrobatch", "1F", 3,
                     R"(expected a microbatch number after "1F", found nothing)"},
        RejectedCase{"NoMicrobatchThenBlank", "1SEND_F  ", 8,
                     R"(expected a microbatch number after "1SEND_F", found nothing)"},
        RejectedCase{"OldSpelling", "2BW0", 3,
                     R"(expected a microbatch number after "2B", found "W0")"},
        RejectedCase{"Word", "0FOO", 3, R"(expected a microbatch number after "0F", found "OO")"},
        RejectedCase{"NegativeMicrobatch", "0F-1", 3,
                     R"(expected a microbatch number after "0F", found "-1")"},
        RejectedCase{"MicrobatchOfUnshard", "1UNSHARD3", 9,
                     R"(UNSHARD takes no microbatch, found "3" after "1UNSHARD")"},
        RejectedCase{"MicrobatchOfReduceGrad", "1REDUCE_GRAD03", 13,
                     R"(REDUCE_GRAD takes no microbatch, found "03" after "1REDUCE_GRAD")"},
        RejectedCase{"TrailingText", "1F0xyz", 4,
                     R"(unexpected "xyz" after "1F0"; a cell holds one action)"},
        RejectedCase{"TwoActions", "1F0 1F1", 5,
                     R"(unexpected "1F1" after "1F0"; a cell holds one action)"},
        RejectedCase{"TrailingTextOfUnshard", "1UNSHARDED", 9,
                     R"(unexpected "ED" after "1UNSHARD"; a cell holds one action)"},
        RejectedCase{"StageTooLarge", " 2147483647F0", 2,
                     R"(stage number "2147483647" is too large; the largest is 2147483646)"},
        RejectedCase{
            "MicrobatchTooLarge", "2F99999999999999999999999999", 3,
            R"(microbatch number "99999999999999999999999999" is too large; the largest is )"
            "2147483646"},
        RejectedCase{"ContainerKindWithStage", "1OVERLAP_F_B", 1,
                     R"(OVERLAP_F_B takes no stage, found "1" before it)" + kContainerShape}),
    name_of<RejectedCase>);

INSTANTIATE_TEST_SUITE_P(
    Containers, RejectedAction,
    testing::Values(
        RejectedCase{"NoKind", "(0F0;1B0)", 10,
                     R"(the parts of a container are followed by OVERLAP_F_B, found "")"},
        RejectedCase{
            "LowerCaseKind", "(0F0;1B0)overlap_f_b", 10,
            R"(the parts of a container are followed by OVERLAP_F_B, found "overlap_f_b")"},
        RejectedCase{
            "BlankBeforeKind", "(0F0;1B0) OVERLAP_F_B", 10,
            R"(the parts of a container are followed by OVERLAP_F_B, found " OVERLAP_F_B")"},
        RejectedCase{"OtherKind", "(0F0;1B0)F", 10,
                     R"(the parts of a container are followed by OVERLAP_F_B, found "F")"},
        RejectedCase{
            "TextBehind", "(0F0;1B0)OVERLAP_F_B0", 10,
            R"(the parts of a container are followed by OVERLAP_F_B, found "OVERLAP_F_B0")"},
        RejectedCase{"Empty", "()OVERLAP_F_B", 2,
                     R"(empty part in the container "()OVERLAP_F_B")" + kContainerShape},
        RejectedCase{"EmptyPart", "(0F0; ;1B0)OVERLAP_F_B", 7,
                     R"(empty part in the container "(0F0; ;1B0)OVERLAP_F_B")" + kContainerShape},
        RejectedCase{"EmptyLastPart", "(0F0;)OVERLAP_F_B", 6,
                     R"(empty part in the container "(0F0;)OVERLAP_F_B")" + kContainerShape},
        RejectedCase{"Unclosed", "(0F0", 5,
                     R"(container "(0F0" has no closing parenthesis)" + kContainerShape},
        RejectedCase{"Nested", "(0F0;(1B0)OVERLAP_F_B)OVERLAP_F_B", 6,
                     R"(a container cannot hold another one, found "(1B0" in )"
                     R"("(0F0;(1B0)OVERLAP_F_B)OVERLAP_F_B")"},
        RejectedCase{"BadPart", "(0F0; 1X0)OVERLAP_F_B", 8, unknown(R"("1X0")")},
        RejectedCase{"PartWithoutMicrobatch", "(0F;1B0)OVERLAP_F_B", 4,
                     R"(expected a microbatch number after "0F", found nothing)"}),
    name_of<RejectedCase>);

TEST(ParseAction, NamesItsPlaceInTheMessage) {
  const auto failure = parse_failure_of([] { return parse_action("2X0"); });
  ASSERT_TRUE(failure);
  EXPECT_STREQ(failure->what(),
               "action:1:2: unknown action \"2X0\"; expected "
               "<stage><kind><microbatch>, for example 2F0");
}

TEST(ParseAction, AnswersGarbageWithAShortMessage) {
  for (const char letter : {'\0', '(', ')', '0', 'F', ' ', '\xff'}) {
    const std::string garbage = "(" + std::string(10'000'000, letter);
    const auto failure = parse_failure_of([&] { return parse_action(garbage); });
    ASSERT_TRUE(failure);
    EXPECT_LT(failure->problem().size(), 500U);
  }
}

TEST(KindText, IsEmptyForIdle) {
  EXPECT_EQ(kind_text(ActionKind::Idle), "");
  EXPECT_EQ(kind_text(ActionKind::Overlap), "OVERLAP_F_B");
}

TEST(AppendText, Appends) {
  std::string text = "0F0,";
  append_text(kForward, text);
  EXPECT_EQ(text, "0F0,2F0");
}

TEST(Kinds, WithAMicrobatchAreThoseThatPrintOne) {
  for (const ActionKind kind : simple_kinds()) {
    const std::string text = to_string(simple(1, kind, 2));
    EXPECT_EQ(text.ends_with('2'), has_microbatch(kind)) << text;
  }
}

RC_GTEST_PROP(ParseAction, UndoesPrinting, ()) {
  const Action action = *random_action();
  RC_ASSERT(parse_action(to_string(action)) == action);
}

// Whatever the parser takes from almost right texts, printing and parsing keeps.
RC_GTEST_PROP(ParseAction, AcceptsOnlyWhatSurvivesPrinting, ()) {
  std::string text = to_string(*random_action());
  const std::size_t position = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
  text.insert(position, 1, *rc::gen::elementOf(std::string("0129FBIW();_ \t\r\n,SENDRCV-")));
  try {
    const Action action = parse_action(text);
    RC_ASSERT(parse_action(to_string(action)) == action);
  } catch (const ParseError& error) {
    RC_ASSERT(error.line() == 1 || text.find('\n') != std::string::npos);
    RC_ASSERT(error.column() >= 1);
    RC_ASSERT(static_cast<std::size_t>(error.column()) <= text.size() + 1);
  }
}

}  // namespace
}  // namespace penstock
