#include "penstock/run/checkpoint/rank_state.h"

#include <unordered_set>
#include <utility>

#include <torch/nn/module.h>

#include "penstock/run/checkpoint/internal/sliced_places.h"
#include "penstock/run/data_parallel/sharded_parameters.h"

namespace penstock {
namespace {

void append(NamedTensors& to, NamedTensors from) {
  for (auto& named : from) to.push_back(std::move(named));
}

// What the optimizer knows of each slice, whole; of slices without elements, nothing.
std::vector<std::vector<StateEntry>> gather_optimizer(ShardedParameters& parameters,
                                                      const torch::optim::Optimizer& optimizer) {
  const std::vector<ParameterSlice>& slices = parameters.slices();
  std::vector<std::vector<StateEntry>> own;
  own.reserve(slices.size());
  for (const ParameterSlice& slice : slices) own.push_back(state_of(optimizer, slice.tensor));
  std::vector<std::vector<StateEntry>> whole(slices.size());
  for (std::size_t index = 0; index < slices.size(); ++index) {
    for (const StateEntry& entry : own[index]) {
      if (std::holds_alternative<std::int64_t>(entry.value)) whole[index].push_back(entry);
    }
  }
  // All replicas gather the same entries, whichever of them each has.
  for (const std::string& name : tensor_entries(optimizer)) {
    std::vector<at::Tensor> parts(slices.size());
    for (std::size_t index = 0; index < slices.size(); ++index) {
      for (const StateEntry& entry : own[index]) {
        if (entry.name == name) parts[index] = std::get<at::Tensor>(entry.value);
      }
    }
    const NamedTensors gathered = parameters.gather(parts, name);
    for (std::size_t index = 0; index < slices.size(); ++index) {
      const at::Tensor& tensor = gathered[index].second;
      if (tensor.defined() && slices[index].tensor.numel() > 0) {
        whole[index].push_back({name, tensor});
      }
    }
  }
  return whole;
}

void gather_sliced(const SlicedParameters& sliced, const torch::optim::Optimizer* optimizer,
                   GatheredState& gathered) {
  NamedTensors whole = sliced.parameters->gather_parameters();
  std::vector<std::vector<StateEntry>> states(whole.size());
  if (optimizer != nullptr) states = gather_optimizer(*sliced.parameters, *optimizer);
  for (const SlicedPlace& place : places_of(sliced)) {
    const at::Tensor& tensor = whole[place.slice].second;
    const bool has_part = place.tensor.numel() > 0 || tensor.numel() == 0;
    if (!has_part) continue;
    gathered.tensors.emplace_back(place.name, tensor);
    if (!states[place.slice].empty()) {
      gathered.parameter_states.push_back({place.name, states[place.slice]});
    }
  }
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
                     torch::optim::Optimizer* optimizer, StageTensors tensors) {
  RankState state{.tensors = {}, .optimizer = optimizer};
  for (const auto& stage : stages) {
    if (ShardedParameters* const sharded = sharded_parameters_of(*stage)) {
      state.sliced.push_back({sharded, stage->module().named_parameters()});
    } else {
      append(state.tensors, stage->module().named_parameters());
    }
    if (tensors == StageTensors::All) append(state.tensors, stage->module().named_buffers());
  }
  return state;
}

std::vector<RankState> rank_states(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                                   torch::optim::Optimizer* optimizer, StageTensors tensors) {
  std::vector<RankState> states;
  states.reserve(stages.size());
  for (const auto& stage : stages) {
    states.push_back(rank_state(std::vector{stage}, optimizer, tensors));
  }
  return states;
}

GatheredState gather(const RankState& state) {
  GatheredState gathered{.tensors = state.tensors, .optimizer = {}, .parameter_states = {}};
  for (const SlicedParameters& sliced : state.sliced) {
    gather_sliced(sliced, state.optimizer, gathered);
  }
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
