#pragma once

#include <span>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/stage/pipeline_stage.h"
#include "penstock/run/transport/message.h"

namespace penstock {

// An action with everything looked up that does not change from step to step.
struct Instruction {
  static constexpr int kNobody = -1;

  const Action* action = nullptr;
  ActionKind kind = ActionKind::Idle;
  int microbatch = Action::kNone;
  PipelineStage* stage = nullptr;
  int slot = kNobody;       // of the stage, among those of the rank
  int peer = kNobody;       // the rank that sends or receives; of a computation: its input
  int next_slot = kNobody;  // whom a computation hands its result to, if on this rank
  MessageKey key = {};      // of the message that is sent or received
  std::vector<Instruction> parts = {};
};

// The list of `rank`, one instruction per action. They refer to the actions of `program`; slots are
// positions in `stages`, which must hold every stage the list works on.
std::vector<Instruction> compile_instructions(const Schedule& program, int rank,
                                              std::span<PipelineStage* const> stages);

}  // namespace penstock
