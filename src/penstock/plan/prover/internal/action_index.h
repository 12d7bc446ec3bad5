#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "penstock/plan/prover/internal/violations.h"
#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// A step in the list of a rank, or kAbsent.
using Step = int;
constexpr Step kAbsent = -1;

// How many stages and microbatches the rules have to look at, given those that actions mention.
// Empty, with a violation, if there are none, more than expected, or so many that most of them must
// be missing.
std::optional<Extent> find_extent(const Schedule& schedule, Extent mentioned,
                                  const CheckOptions& options, Violations& violations);

// A schedule by (stage, microbatch), which is how the rules look at it. An action of a stage that
// lives on another rank is reported and left out.
class ActionIndex {
 public:
  ActionIndex(const Schedule& schedule, Extent extent, Violations& violations);

  const Schedule& schedule() const { return schedule_; }
  int num_stages() const { return extent_.num_stages; }
  int num_microbatches() const { return extent_.num_microbatches; }
  const Placement& placement() const { return placement_; }
  // Where `step` of the rank of `stage` is.
  Position position(int stage, Step step) const { return {placement_.rank_of(stage), step}; }
  bool is_forward_only() const { return is_forward_only_; }

  // At which step of its rank a stage does something, of a kind that has microbatches.
  Step step(ActionKind kind, int stage, int microbatch) const {
    return steps_[static_cast<std::size_t>(kind)].at(stage, microbatch);
  }
  // The step of B or I, whichever is there: what the stage before waits for.
  Step gradient_step(int stage, int microbatch) const {
    const Step full = step(ActionKind::FullBackward, stage, microbatch);
    return full != kAbsent ? full : step(ActionKind::InputBackward, stage, microbatch);
  }

  // Both stages exist, have actions, and live on different ranks.
  bool crosses_ranks(int from_stage, int to_stage) const;
  // Both stages exist, have actions, and live on the same rank.
  bool share_rank(int from_stage, int to_stage) const;

 private:
  void add(const Action& part, Position position, Violations& violations);
  bool is_placed(int stage) const;

  const Schedule& schedule_;
  Extent extent_;
  Placement placement_;
  bool is_forward_only_ = true;
  // One grid per kind, because the rules walk along the microbatches of a stage, kind by kind.
  std::array<MicrobatchGrid<Step>, kNumActionKinds> steps_;
};

}  // namespace penstock
