#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include "penstock/run/capture/captured_model.h"
#include "penstock/run/capture/trace.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/partition/split_graph.h"
#include "penstock/run/partition/split_policy.h"
#include "penstock/run/partition/split_spec.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {

// What a Pipe is made of, without the tensors.
struct PipeInfo {
  struct Stage {
    std::vector<std::string> inputs;   // names of the values it gets
    std::vector<std::string> outputs;  // that it hands on; empty for the last stage
    std::vector<std::string> parameters;
    std::vector<std::string> buffers;
    std::int64_t parameter_bytes = 0;
  };
  std::vector<Stage> stages;
  std::vector<std::string> shared_parameters;  // that several stages use
};

// A model that is cut into stages.
//
// Parameters and buffers are those of the model, not copies, and keep their names; the state dicts
// of all stages together are that of the model. A stage that was taken out keeps only its own
// tensors alive.
class Pipe {
 public:
  explicit Pipe(std::vector<StageGraph> stages);
  // Stages that are modules already, first to last.
  explicit Pipe(std::vector<std::shared_ptr<StageModule>> stages);

  int num_stages() const { return static_cast<int>(modules_.size()); }
  const PipeInfo& info() const { return info_; }

  // Throws ArgumentError unless there is such a stage.
  std::shared_ptr<StageModule> stage_module(int index) const;
  std::shared_ptr<PipelineStage> build_stage(int index,
                                             std::optional<at::Device> device = std::nullopt) const;
  // All of them, for a pipeline in one process.
  std::vector<std::shared_ptr<PipelineStage>> build_stages(
      std::optional<at::Device> device = std::nullopt) const;

  // Runs the stages one after the other on this thread, as the model would run; gradients flow
  // through all of them.
  c10::IValue forward(std::vector<c10::IValue> inputs, const KeywordArguments& keywords = {}) const;

  // By name, sorted; a tensor with several names is there under each of them.
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  std::vector<at::Tensor> parameters() const;  // each once: what an optimizer takes

  void train(bool on = true);

 private:
  std::vector<std::shared_ptr<StageModule>> modules_;
  PipeInfo info_;
  std::vector<std::uint64_t> layouts_;  // of the stages, when they were cut
  std::vector<std::string> graphs_;     // the text of each stage, if it was captured

  friend std::string to_string(const Pipe& pipe);
};

// For people: per stage what comes in, the parameters, the graph and what goes out.
std::string to_string(const Pipe& pipe);

struct PipeOptions {
  KeywordArguments example_kwargs = {};
  std::vector<std::string> argument_names = {};  // of the positional inputs of a C++ model

  // Where to cut, besides the markers in the model: at most one of the two.
  SplitSpec split_spec = {};
  SplitPolicy split_policy = {};

  SplitGraphOptions graph = {};  // parameters that several stages use
};

// Captures a model and cuts it. `example_args` have the size of a microbatch. The model is not
// changed, and may be captured again.
//
// Throws CaptureError if the model cannot be captured, SplitError if it cannot be cut as asked, and
// ArgumentError if the options contradict each other or name modules that do not exist.
Pipe pipeline(const TraceSource& model, const std::vector<c10::IValue>& example_args,
              const PipeOptions& options = {});

// A TorchScript module. Examples are needed only by policies that run it.
Pipe pipeline(const torch::jit::Module& model, const std::vector<c10::IValue>& example_args = {},
              const PipeOptions& options = {});

// A C++ module with one `forward`; a Sequential gives the capture the names of its children.
template <typename Module>
requires std::derived_from<Module, torch::nn::Module> Pipe
pipeline(std::shared_ptr<Module> module, const std::vector<c10::IValue>& example_args,
         const PipeOptions& options = {}) {
  StageForward forward = stage_module_detail::forward_of(module.get());
  return pipeline(TraceSource{std::move(forward), std::move(module)}, example_args, options);
}
Pipe pipeline(const std::shared_ptr<torch::nn::SequentialImpl>& model,
              const std::vector<c10::IValue>& example_args, const PipeOptions& options = {});

// The same for torch::nn::Sequential and other holders of modules.
template <typename Holder>
requires requires(const Holder& holder) {
  typename Holder::ContainedType;
  holder.ptr();
}
Pipe pipeline(const Holder& holder, const std::vector<c10::IValue>& example_args,
              const PipeOptions& options = {}) {
  return pipeline(holder.ptr(), example_args, options);
}

}  // namespace penstock
