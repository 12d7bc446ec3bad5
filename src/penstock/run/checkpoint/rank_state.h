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

class ShardedParameters;

// The parameters of a stage of which this replica has slices.
struct SlicedParameters {
  ShardedParameters* parameters = nullptr;  // that belong to the stage
  NamedTensors named = {};                  // whole, without memory; under all their names
};

// What one rank, or one stage, or a whole model holds of the training state.
struct RankState {
  NamedTensors tensors = {};  // parameters and buffers by the model's own names
  // That steps some of them; null: none. Several may have the same one.
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<SlicedParameters> sliced = {};  // of stages that are sharded
};

// Which tensors of a stage: parameters are the same in all replicas of a pipeline, but each has
// buffers of its own. So one replica saves all, and the others parameters alone.
enum class StageTensors { All, Parameters };

RankState rank_state(const torch::nn::Module& module, torch::optim::Optimizer* optimizer = nullptr);
RankState rank_state(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                     torch::optim::Optimizer* optimizer = nullptr,
                     StageTensors tensors = StageTensors::All);
// One for each of the stages, so that they are written in parallel.
std::vector<RankState> rank_states(const std::vector<std::shared_ptr<PipelineStage>>& stages,
                                   torch::optim::Optimizer* optimizer = nullptr,
                                   StageTensors tensors = StageTensors::All);

// What an optimizer knows about one parameter.
struct ParameterState {
  std::string parameter;
  std::vector<StateEntry> entries;
};

// The same as values: for tensors that do not lie in the optimizer as they are saved, because they
// were gathered from several replicas.
struct GatheredState {
  NamedTensors tensors = {};
  std::string optimizer = {};  // its name, such as "AdamW"; empty: none
  std::vector<ParameterState> parameter_states = {};
};

// Sharded parameters, and what the optimizer knows of them, become whole: all replicas call it at
// the same time, between steps, while the stages belong to a pipeline. Each gets those parameters
// whole of which it has a part, so that none has to hold all of them.
GatheredState gather(const RankState& state);

}  // namespace penstock
