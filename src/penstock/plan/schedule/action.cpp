#include "penstock/plan/schedule/action.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "penstock/plan/schedule/internal/action_parser.h"
#include "penstock/plan/schedule/internal/parse_failure.h"

namespace penstock {
namespace {

void append_number(int number, std::string& text) {
  std::array<char, std::numeric_limits<int>::digits10 + 2> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), end);
}

}  // namespace

ActionParts::ActionParts(std::initializer_list<Action> parts)
    : ActionParts(std::vector<Action>(parts)) {}

ActionParts::ActionParts(std::vector<Action> parts)
    : parts_(parts.empty() ? nullptr
                           : std::make_unique<const std::vector<Action>>(std::move(parts))) {}

ActionParts& ActionParts::operator=(const ActionParts& other) {
  ActionParts copy = other;
  return *this = std::move(copy);
}

bool operator==(const ActionParts& left, const ActionParts& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

std::string_view kind_text(ActionKind kind) {
  switch (kind) {
    case ActionKind::Idle:
      return "";
    case ActionKind::Forward:
      return "F";
    case ActionKind::FullBackward:
      return "B";
    case ActionKind::InputBackward:
      return "I";
    case ActionKind::WeightBackward:
      return "W";
    case ActionKind::Overlap:
      return "OVERLAP_F_B";
    case ActionKind::SendForward:
      return "SEND_F";
    case ActionKind::ReceiveForward:
      return "RECV_F";
    case ActionKind::SendBackward:
      return "SEND_B";
    case ActionKind::ReceiveBackward:
      return "RECV_B";
    case ActionKind::Unshard:
      return "UNSHARD";
    case ActionKind::Reshard:
      return "RESHARD";
    case ActionKind::ReduceGrad:
      return "REDUCE_GRAD";
  }
  return "";
}

void append_text(const Action& action, std::string& text) {
  if (action.kind == ActionKind::Idle) return;
  if (action.kind == ActionKind::Overlap) {
    text += '(';
    for (std::size_t part = 0; part < action.parts.size(); ++part) {
      if (part > 0) text += ';';
      append_text(action.parts[part], text);
    }
    text += ')';
  } else {
    append_number(action.stage, text);
  }
  text += kind_text(action.kind);
  if (has_microbatch(action.kind)) append_number(action.microbatch, text);
}

std::string to_string(const Action& action) {
  std::string text;
  append_text(action, text);
  return text;
}

Action parse_action(std::string_view text) {
  Action action;
  if (const std::optional<TextProblem> failure = parse_action_into(text, action)) {
    throw_parse_error(text, failure->offset, "action", failure->problem);
  }
  return action;
}

}  // namespace penstock
