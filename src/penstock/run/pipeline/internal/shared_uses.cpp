#include "penstock/run/pipeline/internal/shared_uses.h"

#include <utility>
#include <vector>

namespace penstock {
namespace {

// The microbatches in the order in which `stage` makes its weight gradients.
std::vector<int> weight_gradient_order(const Schedule& program, int stage) {
  std::vector<int> order;
  for (const auto& actions : program.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.stage == stage && makes_weight_gradient(part.kind)) {
          order.push_back(part.microbatch);
        }
      });
    }
  }
  return order;
}

}  // namespace

std::unique_ptr<SharedGradients> make_shared_gradients(const StageList& stages,
                                                       const Schedule& program) {
  std::vector<SharedUse> uses;
  for (const auto& stage : stages) {
    for (auto& [name, parameter] : stage->module().shared_parameters()) {
      uses.push_back({stage->index(), std::move(name), std::move(parameter)});
    }
  }
  return std::make_unique<SharedGradients>(
      std::move(uses), [&program](int stage) { return weight_gradient_order(program, stage); });
}

}  // namespace penstock
