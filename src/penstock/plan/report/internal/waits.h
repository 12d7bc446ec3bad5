#pragma once

#include <vector>

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {

// Why an action did not start, or a send did not end, when its rank was free for it.
struct Wait {
  Duration begin{};     // when the rank was free
  Duration computed{};  // until then `cause` held it up, and from then on IdleCause::Transfer
  Duration end{};       // equal to `begin` if there was no wait
  IdleCause cause = IdleCause::Imbalance;
  Position source = {};  // the action that made the value, or the one that stood in the way

  Duration time() const { return end - begin; }
};

// Splits the idle time of a simulation action by action: what the ledger has per rank and cause.
class WaitExplainer {
 public:
  WaitExplainer(const Schedule& program, const Simulation& simulation);

  // One per action of `rank`.
  std::vector<Wait> waits_of(int rank) const;

 private:
  Position producer_of(const Action& receive) const;
  Wait explain_compute(Position here, Duration free) const;

  const Schedule& program_;
  const Simulation& simulation_;
  MicrobatchGrid<Position> forwards_;
  MicrobatchGrid<Position> input_gradients_;
};

}  // namespace penstock
