#include "penstock/run/checkpoint/rank_state.h"

#include <unordered_set>
#include <utility>

#include <torch/nn/module.h>

namespace penstock {
namespace {

void append(NamedTensors& to, NamedTensors from) {
  for (auto& named : from) to.push_back(std::move(named));
}

}  // namespace

RankState rank_state(const torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  RankState state{.tensors = {}, .optimizer = optimizer};
  for (const auto& parameter : module.named_parameters()) {
    state.tensors.emplace_back(parameter.key(), parameter.value());
  }
  for (const auto& buffer : module.named_buffers()) {
    state.tensors.emplace_back(buffer.key(), buffer.value());
  }
  return state;
}

RankState rank_state(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                     torch::optim::Optimizer* optimizer) {
  RankState state{.tensors = {}, .optimizer = optimizer};
  for (const auto& stage : stages) {
    append(state.tensors, stage->module().named_parameters());
    append(state.tensors, stage->module().named_buffers());
  }
  return state;
}

std::vector<RankState> rank_states(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                                   torch::optim::Optimizer* optimizer) {
  std::vector<RankState> states;
  states.reserve(stages.size());
  for (const auto& stage : stages) states.push_back(rank_state(std::vector{stage}, optimizer));
  return states;
}

GatheredState gather(const RankState& state) {
  GatheredState gathered{.tensors = state.tensors, .optimizer = {}, .parameter_states = {}};
  if (state.optimizer == nullptr) return gathered;
  gathered.optimizer = optimizer_name(*state.optimizer);
  std::unordered_set<std::string> seen;
  for (const auto& [name, tensor] : state.tensors) {
    if (!seen.insert(name).second) continue;  // two stages have it
    std::vector<StateEntry> entries = state_of(*state.optimizer, tensor);
    if (!entries.empty()) gathered.parameter_states.push_back({name, std::move(entries)});
  }
  return gathered;
}

}  // namespace penstock
