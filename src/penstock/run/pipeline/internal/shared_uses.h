#pragma once

#include <memory>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/shared_gradients.h"

namespace penstock {

// The uses of shared parameters by all stages of the model. Throws ArgumentError if there are any,
// and some stages are in other processes whose uses are not known.
std::vector<SharedUse> shared_uses_of(const StageList& stages);

// Adds them up in the order in which `program` runs backwards.
std::unique_ptr<SharedGradients> make_shared_gradients(std::vector<SharedUse> uses,
                                                       const Schedule& program);

}  // namespace penstock
