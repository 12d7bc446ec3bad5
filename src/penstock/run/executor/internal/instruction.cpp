#include "penstock/run/executor/internal/instruction.h"

#include <cstddef>

#include "penstock/base/assert.h"
#include "penstock/plan/schedule/placement.h"

namespace penstock {
namespace {

class Compiler {
 public:
  Compiler(const Placement& placement, int rank, std::span<PipelineStage* const> stages)
      : placement_(placement), rank_(rank), stages_(stages) {}

  Instruction compile(const Action& action) const;

 private:
  // The rank that has `stage`, nobody before the first stage and after the last.
  int rank_of(int stage) const {
    return stage >= 0 && stage < placement_.num_stages() ? placement_.rank_of(stage)
                                                         : Instruction::kNobody;
  }
  int slot_of(int stage) const {
    for (std::size_t slot = 0; slot < stages_.size(); ++slot) {
      if (stages_[slot]->index() == stage) return static_cast<int>(slot);
    }
    return Instruction::kNobody;
  }
  // The message that the action's own stage gets from `stage`.
  void receive_from(int stage, Direction direction, Instruction& instruction) const {
    instruction.peer = rank_of(stage) == rank_ ? Instruction::kNobody : rank_of(stage);
    instruction.key = {instruction.action->stage, instruction.microbatch, direction};
  }
  void send_to(int stage, Direction direction, Instruction& instruction) const {
    instruction.peer = rank_of(stage);
    instruction.key = {stage, instruction.microbatch, direction};
  }

  const Placement& placement_;
  int rank_;
  std::span<PipelineStage* const> stages_;
};

Instruction Compiler::compile(const Action& action) const {
  Instruction instruction{.action = &action, .kind = action.kind, .microbatch = action.microbatch};
  for (const Action& part : action.parts) instruction.parts.push_back(compile(part));
  if (action.stage == Action::kNone) return instruction;

  instruction.slot = slot_of(action.stage);
  PENSTOCK_ASSERT(instruction.slot != Instruction::kNobody, "the rank has the stages it runs");
  instruction.stage = stages_[static_cast<std::size_t>(instruction.slot)];

  const int before = action.stage - 1;
  const int after = action.stage + 1;
  switch (action.kind) {
    case ActionKind::Forward:
      receive_from(before, Direction::Forward, instruction);
      instruction.next_slot = slot_of(after);
      break;
    case ActionKind::FullBackward:
    case ActionKind::InputBackward:
      receive_from(after, Direction::Backward, instruction);
      instruction.next_slot = slot_of(before);
      break;
    case ActionKind::ReceiveForward:
      receive_from(before, Direction::Forward, instruction);
      break;
    case ActionKind::ReceiveBackward:
      receive_from(after, Direction::Backward, instruction);
      break;
    case ActionKind::SendForward:
      send_to(after, Direction::Forward, instruction);
      break;
    case ActionKind::SendBackward:
      send_to(before, Direction::Backward, instruction);
      break;
    default:
      break;
  }
  return instruction;
}

}  // namespace

std::vector<Instruction> compile_instructions(const Schedule& program, int rank,
                                              std::span<PipelineStage* const> stages) {
  const Placement placement = placement_of(program, extent_of(program).num_stages);
  const Compiler compiler(placement, rank, stages);
  std::vector<Instruction> instructions;
  instructions.reserve(program.actions_of(rank).size());
  for (const Action& action : program.actions_of(rank)) {
    instructions.push_back(compiler.compile(action));
  }
  return instructions;
}

}  // namespace penstock
