#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "penstock/base/assert.h"
#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"

namespace penstock {
namespace {

// What distinguishes the members of the family.
struct BlockShape {
  int climb;     // slots per hop on the way back up the V
  int max_live;  // most (stage, microbatch) activations a rank may hold
};

// The building block of arXiv 2405.15362: the slot in which microbatch 0 would run each of a
// rank's four linked actions. Microbatch i runs 6i slots later, 6 being the work of a microbatch.
struct BlockSlots {
  int forward_down;
  int forward_up;
  int backward_up;
  int backward_down;
};

// A microbatch travels the V twice: forward down and up, then backward down and up. Hops down take
// one slot, hops up `climb`. A rank therefore holds its two activations for
//   (backward_down - forward_down) + (backward_up - forward_up) = 2p(climb + 1) + 4 - 2 climb + 3
//   pause
// slots, the same on every rank: that is how a V balances memory. `pause`, spent at each of the
// first two turns, brings this as near to 6 max_live - 3 as an integer can.
BlockSlots block_slots(int num_ranks, int rank, BlockShape shape) {
  const int hold_without_pause = 2 * num_ranks * (shape.climb + 1) + 4 - 2 * shape.climb;
  const int pause = (6 * shape.max_live - 2 - hold_without_pause) / 3;
  const int way_down = num_ranks - 1;
  const int way_up = shape.climb * (num_ranks - 1);
  const int first_turn = way_down + 1 + pause;
  const int second_turn = first_turn + way_up + 1 + pause;
  const int third_turn = second_turn + way_down + 3;
  const int climbed = shape.climb * (num_ranks - 1 - rank);
  return {.forward_down = rank,
          .forward_up = first_turn + climbed,
          .backward_up = second_turn + rank,
          .backward_down = third_turn + climbed};
}

// Plays the pipeline slot by slot. In each slot every rank takes the first of these it can:
//   1. its linked action with the earliest block slot; a forward also needs room for its activation
//   2. any other input gradient that is ready, earliest block slot first
//   3. a weight gradient left over, oldest microbatch first
// So forwards keep the order of the block, gradients hurry, and weight gradients fill the gaps.
// Never stuck: the block itself fits into max_live, so the action with the earliest block slot of
// all can always run once the weight gradients before it have.
class BlockPlayer {
 public:
  BlockPlayer(const ScheduleShape& shape, BlockShape block)
      : num_ranks_(shape.num_ranks),
        num_microbatches_(shape.num_microbatches),
        max_live_(block.max_live),
        done_(static_cast<std::size_t>(shape.num_stages())),
        lists_(static_cast<std::size_t>(shape.num_ranks)) {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      slots_.push_back(block_slots(num_ranks_, rank, block));
      lists_[static_cast<std::size_t>(rank)].reserve(6 *
                                                     static_cast<std::size_t>(num_microbatches_));
    }
  }

  Schedule play() {
    std::int64_t num_left = std::int64_t{6} * num_ranks_ * num_microbatches_;
    while (num_left > 0) {
      std::vector<Action> chosen;
      for (int rank = 0; rank < num_ranks_; ++rank) {
        const std::optional<Action> action = choose(rank);
        if (!action) continue;
        lists_[static_cast<std::size_t>(rank)].add(*action);
        chosen.push_back(*action);
      }
      PENSTOCK_ASSERT(!chosen.empty(), "the building block fits into max_live");
      // Only now: what a rank does in this slot, another can use from the next one on.
      for (const Action& action : chosen) ++done(action.stage, action.kind);
      num_left -= static_cast<std::int64_t>(chosen.size());
    }
    Schedule schedule;
    for (ActionList& list : lists_) schedule.ranks.push_back(list.take());
    return schedule;
  }

 private:
  struct Candidate {
    int stage;
    ActionKind kind;
    int block_slot;
  };

  std::optional<Action> choose(int rank) const {
    const int down = rank;
    const int up = 2 * num_ranks_ - 1 - rank;
    const BlockSlots& block = slots_[static_cast<std::size_t>(rank)];
    // In case of equal slots the first one wins.
    const std::array<Candidate, 4> candidates = {{
        {down, ActionKind::InputBackward, block.backward_down},
        {up, ActionKind::InputBackward, block.backward_up},
        {up, ActionKind::Forward, block.forward_up},
        {down, ActionKind::Forward, block.forward_down},
    }};
    std::optional<Action> head;
    std::optional<Action> gradient;
    std::int64_t head_slot = 0;
    std::int64_t gradient_slot = 0;
    for (const Candidate& candidate : candidates) {
      const Action action = next(candidate.stage, candidate.kind);
      if (action.microbatch == num_microbatches_) continue;
      const std::int64_t slot = candidate.block_slot + std::int64_t{6} * action.microbatch;
      if (!head || slot < head_slot) {
        head = action;
        head_slot = slot;
      }
      if (action.kind == ActionKind::InputBackward && is_ready(action) &&
          (!gradient || slot < gradient_slot)) {
        gradient = action;
        gradient_slot = slot;
      }
    }
    const bool may_forward = head && head->kind == ActionKind::Forward &&
                             live(down) + live(up) < max_live_ && is_ready(*head);
    if (may_forward) return head;
    if (gradient) return gradient;
    return oldest_weight_backward(down, up);
  }

  std::optional<Action> oldest_weight_backward(int down, int up) const {
    std::optional<Action> oldest;
    for (const int stage : {up, down}) {
      const Action action = next(stage, ActionKind::WeightBackward);
      const bool is_due = action.microbatch < done(stage, ActionKind::InputBackward);
      if (is_due && (!oldest || action.microbatch < oldest->microbatch)) oldest = action;
    }
    return oldest;
  }

  bool is_ready(const Action& action) const {
    const int last_stage = 2 * num_ranks_ - 1;
    if (action.kind == ActionKind::Forward) {
      return action.stage == 0 || done(action.stage - 1, action.kind) > action.microbatch;
    }
    if (action.stage == last_stage) {
      return done(action.stage, ActionKind::Forward) > action.microbatch;
    }
    return done(action.stage + 1, action.kind) > action.microbatch;
  }

  int live(int stage) const {
    return done(stage, ActionKind::Forward) - done(stage, ActionKind::WeightBackward);
  }
  Action next(int stage, ActionKind kind) const {
    return {.stage = stage, .kind = kind, .microbatch = done(stage, kind)};
  }

  // Per stage, how many microbatches each kind has finished. Every kind goes through the
  // microbatches in order, so these counts are the whole state of the pipeline.
  using Done = std::array<int, 3>;
  static std::size_t index_of(ActionKind kind) {
    if (kind == ActionKind::Forward) return 0;
    return kind == ActionKind::InputBackward ? 1 : 2;
  }
  int& done(int stage, ActionKind kind) {
    return done_[static_cast<std::size_t>(stage)][index_of(kind)];
  }
  int done(int stage, ActionKind kind) const {
    return done_[static_cast<std::size_t>(stage)][index_of(kind)];
  }

  int num_ranks_;
  int num_microbatches_;
  int max_live_;
  std::vector<BlockSlots> slots_;
  std::vector<Done> done_;
  std::vector<ActionList> lists_;
};

}  // namespace

// Half of the memory of 1F1B: floor((p + 2) / 2) microbatches of a rank's two stages.
Schedule make_v_half(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("V-Half", requested);
  return BlockPlayer(shape, {.climb = 2, .max_live = 2 * ((shape.num_ranks + 2) / 2)}).play();
}

// A third of the memory of 1F1B: floor((p + 4) / 3) microbatches of a rank's two stages.
Schedule make_v_min(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("V-Min", requested);
  return BlockPlayer(shape, {.climb = 1, .max_live = 2 * ((shape.num_ranks + 4) / 3)}).play();
}

}  // namespace penstock
