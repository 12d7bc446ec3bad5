#pragma once

#include <memory>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/shared_gradients.h"

namespace penstock {

// For the parameters that several of `stages` use, in the order in which `program` runs backwards.
// Throws ArgumentError if there are such parameters, and not all stages are in this process.
std::unique_ptr<SharedGradients> make_shared_gradients(const StageList& stages,
                                                       const Schedule& program);

}  // namespace penstock
