#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/run/microbatch/microbatch.h"

namespace penstock {

class SharedClaims;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The slice of a model that a stage runs: something to call, and the tensors it owns. See
// make_stage_module() for the ways to get one.
class StageModule {
 public:
  StageModule() = default;
  StageModule(const StageModule&) = delete;
  StageModule& operator=(const StageModule&) = delete;
  StageModule(StageModule&&) = delete;
  StageModule& operator=(StageModule&&) = delete;
  virtual ~StageModule() = default;

  virtual c10::IValue forward(const std::vector<c10::IValue>& inputs,
                              const KeywordArguments& keywords) = 0;

  // The names of the keyword inputs that forward() takes.
  virtual std::vector<std::string> keywords() const { return {}; }

  // A tensor that is registered under several names is listed under each of them.
  virtual NamedTensors named_parameters() const = 0;
  virtual NamedTensors named_buffers() const = 0;

  // The parameters among them that other stages of the model use too, one entry per use. forward()
  // takes them as its last inputs: in training not the tensors themselves but an alias for each
  // use, whose gradients the pipeline adds up in the order in which one process would.
  virtual NamedTensors shared_parameters() const { return {}; }
  // Says which stage counts them as its own. Not null if there are any.
  virtual std::shared_ptr<SharedClaims> shared_claims() const { return nullptr; }

  virtual void train(bool on) = 0;
  virtual void to(at::Device device) = 0;
};

}  // namespace penstock
