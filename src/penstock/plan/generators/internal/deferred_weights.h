#pragma once

#include "penstock/plan/generators/internal/action_list.h"
#include "penstock/plan/generators/internal/interleaved_order.h"

namespace penstock {

// How far a rank's forwards run ahead and its weight gradients stay behind. On the first rank the
// memory goes into forwards in flight, on the last into weight gradients put off: the sum is the
// same for every rank.
struct DeferredWeights {
  int lead_per_rank = 1;  // warm-up forwards for each rank below
  int lag_per_rank = 1;   // input gradients a weight gradient stays behind, for each rank above
};

// Appends rank `rank` of an interleaved schedule with split backwards: warm-up, `warmup_idle` idle
// slots if there was any warm-up, then rounds of F, I and W, and the weight gradients left over.
void append_deferred_weights(const InterleavedOrder& order, int rank, DeferredWeights options,
                             int warmup_idle, ActionList& list);

}  // namespace penstock
