#pragma once

#include <vector>

#include "penstock/plan/simulator/profile.h"
#include "penstock/run/microbatch/microbatch.h"
#include "penstock/run/partition/split_graph.h"

namespace penstock {

// Runs `model` on `example`, cut at `cuts`, and fills in what each piece takes, forward and
// backward: the medians of `num_runs` runs. The model is left as it was.
void time_pieces(const CapturedModel& model, const CutPositions& cuts, const Microbatch& example,
                 int num_runs, std::vector<LayerCost>& costs);

}  // namespace penstock
