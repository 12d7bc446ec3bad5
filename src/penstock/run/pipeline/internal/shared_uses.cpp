#include "penstock/run/pipeline/internal/shared_uses.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

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
      if (static_cast<int>(stages.size()) < stage->num_stages()) {
        throw ArgumentError(fmt::format(
            "stage {} uses the parameter {} together with stages that may be in other processes, "
            "and those do not exchange its gradients; cut the model with MultiUse::Transmit",
            stage->index(), quote(name)));
      }
      uses.push_back({stage->index(), std::move(name), std::move(parameter)});
    }
  }
  return std::make_unique<SharedGradients>(
      std::move(uses), [&program](int stage) { return weight_gradient_order(program, stage); });
}

}  // namespace penstock
