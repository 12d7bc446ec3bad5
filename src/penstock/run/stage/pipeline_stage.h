#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/base/error.h"
#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/microbatch/microbatch.h"
#include "penstock/run/stage/parameter_actions.h"
#include "penstock/run/stage/shared_gradients.h"
#include "penstock/run/stage/stage_module.h"
#include "penstock/run/transport/message.h"

namespace penstock {

// A stage's module, or the autograd graph it has made, threw.
class StageError : public Error {
 public:
  using Error::Error;
};

struct StagePosition {
  int index = 0;
  int num_stages = 1;
  // layout_of() all stages, from whoever has cut the whole model; empty if nobody has.
  std::vector<std::uint64_t> model_layouts = {};
};

// A gradient that belongs to a tensor of the caller, not of the pipeline.
struct RootGradient {
  at::Tensor tensor;
  at::Tensor gradient;
};

// One slice of the model, and what it keeps of every microbatch between forward and backward.
//
// Shapes are not known in advance: each microbatch of each step may have its own. What runs a
// stage is the executor; one thread at a time.
class PipelineStage {
 public:
  PipelineStage(std::shared_ptr<StageModule> module, StagePosition position);

  int index() const { return position_.index; }
  int num_stages() const { return position_.num_stages; }
  const std::vector<std::uint64_t>& model_layouts() const { return position_.model_layouts; }
  bool is_first() const { return position_.index == 0; }
  bool is_last() const { return position_.index == position_.num_stages - 1; }

  StageModule& module() { return *module_; }
  const StageModule& module() const { return *module_; }
  // Each tensor once; of a sharded stage, the slices that are here. One that several stages of the
  // process use is listed by one of them: the first that was made.
  std::vector<at::Tensor> parameters() const;

  // What the parameter actions do; null if nothing. To be set between steps, by replicate_stage()
  // and shard_stage().
  ParameterActions* parameter_actions() const { return parameter_actions_.get(); }
  void set_parameter_actions(std::shared_ptr<ParameterActions> actions);

  struct Step {
    bool is_training = false;
    int num_microbatches = 0;
    WeightGradients weight_gradients = WeightGradients::Exact;
    SharedGradients* shared_gradients = nullptr;  // needed if the module has shared parameters
  };

  // Forgets whatever an earlier step, finished or failed, has left.
  void begin_step(const Step& step);

  // Calls the module. In training, the microbatch is live from here to its backward or
  // backward_weight; exactly one of the two keep functions must follow.
  c10::IValue forward(int microbatch, const Message& inputs, const KeywordArguments& keywords);

  // Makes the message for the next stage out of what forward() returned.
  void keep_outputs(int microbatch, const c10::IValue& output, Message& message);
  // The backward of the last stage starts at `loss`.
  void keep_loss(int microbatch, const at::Tensor& loss);

  // B, I and W. `gradients` has one entry per output, `input_gradients` gets one per input.
  void backward(int microbatch, const Message& gradients, Message& input_gradients);
  void backward_input(int microbatch, const Message& gradients, Message& input_gradients);
  void backward_weight(int microbatch);

  // UNSHARD, the wait for what it gathers, RESHARD and REDUCE_GRAD.
  void unshard();
  void await_parameters();
  void reshard();
  void reduce_gradients();

  // Throws StageError if the gradients of the step, or of the last one, are not yet those of all
  // replicas.
  void require_final_gradients() const;

  // (stage, microbatch) pairs whose activations are held at this moment.
  int num_live_microbatches() const { return num_live_; }

  // Gradients of the step's inputs from outside of the pipeline, by microbatch.
  const std::vector<RootGradient>& root_gradients() const { return root_gradients_; }
  void end_step();

 private:
  // What a microbatch keeps. Used again by later ones, for the sake of its buffers.
  struct Run {
    BackwardGraph graph;
    std::vector<at::Tensor> leaves;   // what the module got: first the message's, then others
    std::vector<at::Tensor> sources;  // of the others: the caller's tensor they stand for
    std::size_t num_message_leaves = 0;
    std::vector<at::Tensor> shared;  // aliases of shared parameters, undefined if without gradient
  };

  Run& open(int microbatch);
  Run& run_of(int microbatch, const char* action);
  void close(int microbatch);
  void forget_keywords();
  void add_leaves(Run& run, const Message& inputs);
  c10::IValue cut(Run& run, const c10::IValue& value);
  at::Tensor alias_of_shared(Run& run, const at::Tensor& parameter);
  std::span<const at::Tensor> seeds_of(const Message& gradients);
  void hand_back(Run& run, Message& input_gradients);
  void require_open_parameters();
  void hand_over_shared(Run& run, int microbatch) const;

  std::shared_ptr<StageModule> module_;
  StagePosition position_;
  std::shared_ptr<ParameterActions> parameter_actions_;
  Step step_;
  NamedTensors shared_;                     // of the module, one entry per use
  std::vector<std::unique_ptr<Run>> runs_;  // all there are
  std::vector<Run*> free_runs_;
  std::vector<Run*> run_of_microbatch_;  // null where none is live
  std::atomic<int> num_live_ = 0;        // read by the thread of another part of a container
  std::vector<RootGradient> root_gradients_;

  // Scratch of one call, kept for their buffers.
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> gradients_;
  Message module_inputs_;
  KeywordArguments root_keywords_;
};

using StageList = std::vector<std::shared_ptr<PipelineStage>>;

}  // namespace penstock
