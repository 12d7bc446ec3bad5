#pragma once

#include <string>
#include <vector>

#include "penstock/plan/simulator/cost_model.h"
#include "penstock/run/microbatch/microbatch.h"
#include "penstock/run/partition/split_graph.h"

namespace penstock {

// What a module, with everything inside of it, has and takes.
struct ModuleCost {
  std::string path;  // "" for the whole model
  std::int64_t num_parameters = 0;
  std::int64_t parameter_bytes = 0;
  Duration forward{};
  Duration backward{};
};

// One entry for the model and each of its modules, parents first, then by name as the model has
// them. Times are zero without example inputs; with them, the model is run operator by operator as
// split_by_time() does. A parameter with several names counts where it is first.
std::vector<ModuleCost> module_costs(const CapturedModel& model, const Microbatch& example);

}  // namespace penstock
