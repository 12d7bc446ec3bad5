#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/run/optimizer/optimizer_state.h"
#include "penstock/run/stage/pipeline_stage.h"
#include "penstock/run/stage/stage_module.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace penstock {

// What one rank, or one stage, or a whole model holds of the training state.
struct RankState {
  NamedTensors tensors = {};  // parameters and buffers by the model's own names
  // That steps some of them; null: none. Several may have the same one.
  torch::optim::Optimizer* optimizer = nullptr;
};

RankState rank_state(const torch::nn::Module& module, torch::optim::Optimizer* optimizer = nullptr);
RankState rank_state(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                     torch::optim::Optimizer* optimizer = nullptr);
// One for each of the stages, so that they are written in parallel.
std::vector<RankState> rank_states(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                                   torch::optim::Optimizer* optimizer = nullptr);

// What an optimizer knows about one parameter.
struct ParameterState {
  std::string parameter;
  std::vector<StateEntry> entries;
};

// The same as values: for tensors that do not lie in the optimizer as they are saved, because they
// were gathered from several ranks.
struct GatheredState {
  NamedTensors tensors = {};
  std::string optimizer = {};  // its name, such as "AdamW"; empty: none
  std::vector<ParameterState> parameter_states = {};
};

GatheredState gather(const RankState& state);

}  // namespace penstock
