#pragma once

#include <span>
#include <vector>

#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/stage/shared_gradients.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// Brings the gradients of shared parameters to the other processes whose stages use them, so that
// all copies of a parameter get the same sum. At the end of a step, when no rank is running.
class SharedExchange {
 public:
  SharedExchange(std::span<const SharedUse> uses, const Placement& placement, Extent extent,
                 std::span<const int> local_ranks);

  // Of the messages of the program and those of the exchange, which follow as further stages. The
  // same in all processes.
  Extent extent() const { return extent_; }

  void run(Fabric& fabric, SharedGradients& gradients) const;

 private:
  // The gradients of `stage` on their way from its rank to another that uses the same parameters.
  struct Route {
    int stage = 0;
    int from_rank = 0;
    int to_rank = 0;
    int key_stage = 0;
    bool is_needed = true;  // false if another rank of this process gets them, too
  };

  Extent extent_;
  std::vector<Route> outgoing_;
  std::vector<Route> incoming_;
};

}  // namespace penstock
