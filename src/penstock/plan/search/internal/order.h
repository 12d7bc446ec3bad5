#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/search/internal/problem.h"

namespace penstock {

// An action of a rank whose stages take their microbatches in order: the microbatch is the number
// of earlier steps with the same slot that do the same thing.
struct Step {
  std::uint8_t slot = 0;  // index into SearchRank::stages
  ActionKind kind = ActionKind::Forward;

  friend bool operator==(const Step&, const Step&) = default;
};

// One list of steps per rank.
using Order = std::vector<std::vector<Step>>;

// How often each thing has been done on one stage: the next microbatch of each kind.
struct StageCounts {
  int forwards = 0;
  int inputs = 0;   // I and B
  int weights = 0;  // W and B

  int next(ActionKind kind) const {
    if (kind == ActionKind::Forward) return forwards;
    return kind == ActionKind::WeightBackward ? weights : inputs;
  }
  void add(ActionKind kind) {
    forwards += kind == ActionKind::Forward ? 1 : 0;
    inputs += makes_input_gradient(kind) ? 1 : 0;
    weights += makes_weight_gradient(kind) ? 1 : 0;
  }
};

// `schedule` must be a compute order in the placement of `problem`, without containers, in which
// stages take their microbatches in order.
Order to_order(const SearchProblem& problem, const Schedule& schedule);
Schedule to_schedule(const SearchProblem& problem, const Order& order);

// One microbatch after the other: slow, but within every limit under which there is an order.
Order make_sequential_order(const SearchProblem& problem);

}  // namespace penstock
