#include "penstock/plan/schedule/internal/action_parser.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/text.h"

namespace penstock {
namespace {

using Problem = std::optional<TextProblem>;

constexpr std::string_view kContainerKind = "OVERLAP_F_B";
constexpr std::string_view kContainerShape =
    "expected (<action>;<action>)OVERLAP_F_B, for example (0F3;7B1)OVERLAP_F_B";

constexpr bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// The kind that `text` begins with, or Idle. No kind's text is the beginning of another's.
ActionKind kind_at_start(std::string_view text) {
  if (text.empty()) return ActionKind::Idle;
  switch (text.front()) {
    case 'F':
      return ActionKind::Forward;
    case 'B':
      return ActionKind::FullBackward;
    case 'I':
      return ActionKind::InputBackward;
    case 'W':
      return ActionKind::WeightBackward;
    default:
      break;
  }
  constexpr std::array kLongKinds = {
      ActionKind::SendForward,     ActionKind::ReceiveForward, ActionKind::SendBackward,
      ActionKind::ReceiveBackward, ActionKind::Unshard,        ActionKind::Reshard,
      ActionKind::ReduceGrad,
  };
  const auto found = std::find_if(kLongKinds.begin(), kLongKinds.end(), [text](ActionKind kind) {
    return text.starts_with(kind_text(kind));
  });
  return found == kLongKinds.end() ? ActionKind::Idle : *found;
}

// Removes the digits at the start of `text`; their value, or kNone if it exceeds kLargestIndex.
int take_number(std::string_view& text) {
  std::int64_t value = 0;
  bool fits = true;
  std::size_t length = 0;
  for (; length < text.size() && is_digit(text[length]); ++length) {
    if (fits) value = value * 10 + (text[length] - '0');
    fits = fits && value <= Action::kLargestIndex;
  }
  text.remove_prefix(length);
  return fits ? static_cast<int>(value) : Action::kNone;
}

class CellParser {
 public:
  explicit CellParser(std::string_view text) : text_(text) {}

  Problem parse(Action& action) const {
    const std::string_view cell = trimmed(text_);
    if (cell.empty()) return std::nullopt;
    return cell.front() == '(' ? parse_container(cell, action) : parse_simple(cell, action);
  }

 private:
  Problem parse_simple(std::string_view simple, Action& action) const {
    if (!is_digit(simple.front())) return without_stage(simple);
    std::string_view rest = simple;
    action.stage = take_number(rest);
    if (action.stage == Action::kNone) return too_large("stage", simple, rest);
    action.kind = kind_at_start(rest);
    if (action.kind == ActionKind::Idle) return unknown_kind(simple, rest);
    rest.remove_prefix(kind_text(action.kind).size());
    if (has_microbatch(action.kind)) {
      if (rest.empty() || !is_digit(rest.front())) return without_microbatch(simple, rest);
      const std::string_view digits = rest;
      action.microbatch = take_number(rest);
      if (action.microbatch == Action::kNone) return too_large("microbatch", digits, rest);
    } else if (!rest.empty() && is_digit(rest.front())) {
      return problem_at(
          rest, fmt::format("{} takes no microbatch, found {} after {}", kind_text(action.kind),
                            quote(rest), quote(before(rest, simple))));
    }
    if (!rest.empty()) return trailing_text(simple, rest);
    return std::nullopt;
  }

  Problem parse_container(std::string_view container, Action& action) const {
    const std::size_t close = container.find(')');
    if (close == std::string_view::npos) {
      return problem_at(container.substr(container.size()),
                        fmt::format("container {} has no closing parenthesis; {}", quote(container),
                                    kContainerShape));
    }
    std::vector<Action> parts;
    std::string_view texts = container.substr(1, close - 1);
    for (bool is_last = false; !is_last;) {
      const std::size_t length = std::min(texts.find(';'), texts.size());
      is_last = length == texts.size();
      const std::string_view text = texts.substr(0, length);
      if (Problem problem = parse_part(container, text, parts.emplace_back())) return problem;
      if (!is_last) texts.remove_prefix(length + 1);
    }
    action = {.kind = ActionKind::Overlap, .parts = ActionParts(std::move(parts))};
    const std::string_view kind = container.substr(close + 1);
    if (kind == kContainerKind) return std::nullopt;
    return problem_at(kind, fmt::format("the parts of a container are followed by {}, found {}",
                                        kContainerKind, quote(kind)));
  }

  Problem parse_part(std::string_view container, std::string_view untrimmed, Action& action) const {
    const std::string_view part = trimmed(untrimmed);
    if (part.empty()) {
      return problem_at(
          untrimmed.substr(untrimmed.size()),
          fmt::format("empty part in the container {}; {}", quote(container), kContainerShape));
    }
    if (part.front() == '(') {
      return problem_at(part, fmt::format("a container cannot hold another one, found {} in {}",
                                          quote(part), quote(container)));
    }
    return parse_simple(part, action);
  }

  Problem without_stage(std::string_view simple) const {
    if (kind_at_start(simple) == ActionKind::Idle) return unknown_action(simple, simple);
    return problem_at(simple, fmt::format("stage missing in {}; expected "
                                          "<stage><kind><microbatch>, for example 2F0",
                                          quote(simple)));
  }

  Problem unknown_kind(std::string_view simple, std::string_view rest) const {
    if (!rest.starts_with(kContainerKind)) return unknown_action(simple, rest);
    return problem_at(simple,
                      fmt::format("{} takes no stage, found {} before it; {}", kContainerKind,
                                  quote(before(rest, simple)), kContainerShape));
  }

  Problem unknown_action(std::string_view simple, std::string_view place) const {
    return problem_at(place, fmt::format("unknown action {}; expected <stage><kind><microbatch>, "
                                         "for example 2F0",
                                         quote(simple)));
  }

  Problem without_microbatch(std::string_view simple, std::string_view rest) const {
    const std::string found = rest.empty() ? "nothing" : quote(rest);
    return problem_at(rest, fmt::format("expected a microbatch number after {}, found {}",
                                        quote(before(rest, simple)), found));
  }

  Problem trailing_text(std::string_view simple, std::string_view rest) const {
    const std::string_view extra = trimmed(rest);
    return problem_at(extra, fmt::format("unexpected {} after {}; a cell holds one action",
                                         quote(extra), quote(before(rest, simple))));
  }

  Problem too_large(std::string_view what, std::string_view number, std::string_view rest) const {
    return problem_at(number, fmt::format("{} number {} is too large; the largest is {}", what,
                                          quote(before(rest, number)), Action::kLargestIndex));
  }

  // What comes before `rest` in `whole`; `rest` must be the end of it.
  static std::string_view before(std::string_view rest, std::string_view whole) {
    return whole.substr(0, whole.size() - rest.size());
  }

  // `place` must be a part of the text, and may be its empty end.
  Problem problem_at(std::string_view place, std::string problem) const {
    return TextProblem{.offset = static_cast<std::size_t>(place.data() - text_.data()),
                       .problem = std::move(problem)};
  }

  std::string_view text_;
};

}  // namespace

std::optional<TextProblem> parse_action_into(std::string_view text, Action& action) {
  return CellParser(text).parse(action);
}

}  // namespace penstock
