#include "penstock/run/pipeline/internal/shared_uses.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/stage/shared_claims.h"

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

std::vector<SharedUse> local_uses_of(const StageList& stages) {
  std::vector<SharedUse> uses;
  for (const auto& stage : stages) {
    for (auto& [name, parameter] : stage->module().shared_parameters()) {
      uses.push_back({stage->index(), std::move(name), std::move(parameter)});
    }
  }
  return uses;
}

// What all processes know alike, if the stages come from one captured model.
std::vector<SharedUse> global_uses_of(const StageList& stages) {
  std::vector<SharedUse> uses;
  const std::shared_ptr<SharedClaims> claims = stages.front()->module().shared_claims();
  if (claims == nullptr) return uses;
  for (const SharedPlace& place : claims->uses()) {
    uses.push_back({place.stage, place.name, at::Tensor()});
  }
  return uses;
}

}  // namespace

std::vector<SharedUse> shared_uses_of(const StageList& stages) {
  std::vector<SharedUse> local = local_uses_of(stages);
  if (static_cast<int>(stages.size()) == stages.front()->num_stages()) return local;
  std::vector<SharedUse> uses = global_uses_of(stages);
  auto next = local.begin();
  for (SharedUse& use : uses) {
    if (next == local.end() || next->stage != use.stage || next->name != use.name) continue;
    use.parameter = std::move(next->parameter);
    ++next;
  }
  if (next != local.end()) {
    throw ArgumentError(fmt::format(
        "stage {} uses the parameter {} together with stages of other processes, which are not "
        "known; take all stages from one Pipe",
        next->stage, quote(next->name)));
  }
  return uses;
}

std::unique_ptr<SharedGradients> make_shared_gradients(std::vector<SharedUse> uses,
                                                       const Schedule& program) {
  return std::make_unique<SharedGradients>(
      std::move(uses), [&program](int stage) { return weight_gradient_order(program, stage); });
}

}  // namespace penstock
