#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class ActionKind : std::uint8_t {
  Idle,             // ""             an empty slot of a compute order
  Forward,          // F
  FullBackward,     // B              input and weight gradient together
  InputBackward,    // I              input gradient only
  WeightBackward,   // W              the weight gradient an I has left over
  Overlap,          // OVERLAP_F_B    a container of actions that may run together
  SendForward,      // SEND_F         activation, from the acting stage s to s + 1
  ReceiveForward,   // RECV_F         activation, from s - 1 to the acting stage s
  SendBackward,     // SEND_B         gradient, from the acting stage s to s - 1
  ReceiveBackward,  // RECV_B         gradient, from s + 1 to the acting stage s
  Unshard,          // UNSHARD        gather the stage's sharded parameters
  Reshard,          // RESHARD        release them again
  ReduceGrad,       // REDUCE_GRAD    finish the stage's gradients
};

constexpr std::size_t kNumActionKinds = 13;

struct Action;

// The actions inside of a container. Reads like a constant vector, but takes the room of one
// pointer, because millions of actions have no parts and few have two.
class ActionParts {
 public:
  ActionParts() = default;
  ActionParts(std::initializer_list<Action> parts);
  explicit ActionParts(std::vector<Action> parts);
  ActionParts(const ActionParts& other);
  ActionParts(ActionParts&& other) noexcept = default;
  ActionParts& operator=(const ActionParts& other);
  ActionParts& operator=(ActionParts&& other) noexcept = default;
  ~ActionParts();

  const Action* begin() const;
  const Action* end() const;
  bool empty() const { return parts_ == nullptr; }
  std::size_t size() const;
  const Action& operator[](std::size_t index) const;

  friend bool operator==(const ActionParts& left, const ActionParts& right);

 private:
  std::unique_ptr<const std::vector<Action>> parts_;  // null if there are none
};

// One unit of work of one rank: `kind`, applied to `microbatch`, on `stage`.
//
// Written <stage><kind><microbatch>; "2F0" is the forward of microbatch 0 on stage 2. Kinds that
// concern a whole stage have no microbatch ("2UNSHARD"); a container has neither, but parts
// ("(0F3;7B1)OVERLAP_F_B"); an idle slot has nothing and is written as the empty text.
struct Action {
  static constexpr int kNone = -1;
  // One below the largest int, so that counts and the neighbours of a stage are ints too.
  static constexpr int kLargestIndex = std::numeric_limits<int>::max() - 1;

  int stage = kNone;
  ActionKind kind = ActionKind::Idle;
  int microbatch = kNone;
  ActionParts parts = {};  // of an Overlap: at least one, none of them an Overlap or idle

  friend bool operator==(const Action&, const Action&) = default;
};

inline ActionParts::ActionParts(const ActionParts& other)
    : parts_(other.empty() ? nullptr : std::make_unique<const std::vector<Action>>(*other.parts_)) {
}
inline ActionParts::~ActionParts() = default;
inline const Action* ActionParts::begin() const {
  return empty() ? nullptr : parts_->data();
}
inline const Action& ActionParts::operator[](std::size_t index) const {
  return (*parts_)[index];
}
inline const Action* ActionParts::end() const {
  return begin() + size();
}
inline std::size_t ActionParts::size() const {
  return empty() ? 0 : parts_->size();
}

constexpr bool has_microbatch(ActionKind kind) {
  return kind != ActionKind::Idle && kind < ActionKind::Unshard && kind != ActionKind::Overlap;
}

constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::SendForward || kind == ActionKind::SendBackward;
}

constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::ReceiveForward || kind == ActionKind::ReceiveBackward;
}

// Computing kinds make up a schedule as generated; lowering adds all the others.
constexpr bool is_compute(ActionKind kind) {
  return kind >= ActionKind::Forward && kind <= ActionKind::Overlap;
}

// B or I: what produces the gradient that the stage before needs.
constexpr bool makes_input_gradient(ActionKind kind) {
  return kind == ActionKind::FullBackward || kind == ActionKind::InputBackward;
}

// B or W: what completes a microbatch on its stage and releases its activations.
constexpr bool makes_weight_gradient(ActionKind kind) {
  return kind == ActionKind::FullBackward || kind == ActionKind::WeightBackward;
}

// Calls `visit` for the action itself or, if it is a container, for each of its parts.
template <typename Visit>
void for_each_part(const Action& action, Visit&& visit) {
  if (action.kind != ActionKind::Overlap) {
    visit(action);
    return;
  }
  for (const Action& part : action.parts) visit(part);
}

// The text of a kind as the schedule formats spell it; empty for Idle.
std::string_view kind_text(ActionKind kind);

void append_text(const Action& action, std::string& text);
std::string to_string(const Action& action);

// The inverse of to_string(). Blanks around the action and around its parts are ignored.
// Throws ParseError, with the column, on any other text.
Action parse_action(std::string_view text);

}  // namespace penstock
