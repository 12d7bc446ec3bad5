#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace penstock {

// What UNSHARD, RESHARD and REDUCE_GRAD do to the parameters of a stage. A stage that has none
// ignores these actions: its parameters are whole, and its gradients final as soon as they are
// there. See penstock/run/data_parallel for those that do something.
//
// Used like the stage: by its rank during a step, by one caller between steps.
class ParameterActions {
 public:
  ParameterActions() = default;
  ParameterActions(const ParameterActions&) = delete;
  ParameterActions& operator=(const ParameterActions&) = delete;
  ParameterActions(ParameterActions&&) = delete;
  ParameterActions& operator=(ParameterActions&&) = delete;
  virtual ~ParameterActions() = default;

  // Whether parameters have to be gathered before they are used.
  virtual bool is_sharded() const = 0;

  // What an optimizer steps.
  virtual std::vector<at::Tensor> parameters() const = 0;

  // Around a step. What an earlier one has left, finished or failed, is forgotten.
  virtual void begin_step(bool is_training) = 0;
  virtual void end_step() = 0;

  // UNSHARD: begins to gather, and does not wait.
  virtual void unshard() = 0;
  // Waits until what unshard() began is complete; returns at once if there is nothing to wait for.
  virtual void await_parameters() = 0;
  // RESHARD.
  virtual void reshard() = 0;
  // REDUCE_GRAD: begins to add up the gradients of all replicas, and does not wait for them.
  virtual void reduce_gradients() = 0;

  // Throws StageError, which names the stage, unless its parameters are there.
  virtual void require_parameters() const = 0;
  // The stage is about to add to its gradients. Throws StageError if they are reduced already.
  virtual void expect_gradients() = 0;
  // Throws StageError unless the gradients are those of all replicas: what an optimizer may use.
  virtual void require_final_gradients() const = 0;
};

}  // namespace penstock
