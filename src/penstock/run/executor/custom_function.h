#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include <ATen/core/ivalue.h>

#include "penstock/plan/schedule/action.h"
#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

class PipelineStage;

// An action that is about to run, as a custom function sees it. The values from other ranks that
// the action needs have arrived.
class ActionContext {
 public:
  ActionContext() = default;
  ActionContext(const ActionContext&) = delete;
  ActionContext& operator=(const ActionContext&) = delete;
  ActionContext(ActionContext&&) = delete;
  ActionContext& operator=(ActionContext&&) = delete;
  virtual ~ActionContext() = default;

  virtual int rank() const = 0;
  virtual const Action& action() const = 0;

  // The stage of the action. Throws ArgumentError for a container, which has none of its own.
  virtual PipelineStage& stage() const = 0;

  // What the step was given for the microbatch of the action: its inputs, as far as this process
  // has them, and its target, None without one. Throw ArgumentError for an action that concerns no
  // single microbatch.
  virtual const Microbatch& inputs() const = 0;
  virtual c10::IValue target() const = 0;
  virtual const KeywordArguments& loss_keywords() const = 0;

  // Does what the executor does for this action without a custom function. A computing action that
  // is never run leaves its neighbours without values, which is an error, as is a second run.
  virtual void run() = 0;

  // Runs one part of a container, with the custom function of its kind if there is one. Parts on
  // different stages may be run by two threads at the same time.
  virtual void run_part(std::size_t part) = 0;
};

using CustomFunction = std::function<void(ActionContext&)>;

// What to do instead of, before or after the actions of a kind; inside of containers too. There are
// none for SEND and RECV, which only the executor can run: a pipeline refuses them.
class CustomFunctions {
 public:
  CustomFunction& operator[](ActionKind kind) { return functions_[static_cast<std::size_t>(kind)]; }
  const CustomFunction& operator[](ActionKind kind) const {
    return functions_[static_cast<std::size_t>(kind)];
  }

 private:
  std::array<CustomFunction, kNumActionKinds> functions_;
};

}  // namespace penstock
