#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "penstock/run/capture/captured_model.h"
#include "penstock/run/stage/make_stage_module.h"

namespace penstock {

// A model that is written in C++.
struct TraceSource {
  StageForward forward;
  std::shared_ptr<torch::nn::Module> module = nullptr;  // owns the tensors; none if null
};

struct TraceOptions {
  KeywordArguments example_kwargs = {};
  // Of the positional arguments, for calls by keyword. Default: input0, input1, ...
  std::vector<std::string> argument_names = {};
};

// Captures a model by running it once on example inputs of the size of a microbatch, and writing
// down the operators. Random generator and buffers are left as they were.
//
// Sizes that the model reads, and inputs that are not tensors, become constants of the graph.
// Throws CaptureError, with the operator and its module, where the model reads the value of a
// tensor, because what it does next could differ from input to input.
CapturedModel trace_model(const TraceSource& source, const std::vector<c10::IValue>& example_args,
                          const TraceOptions& options = {});

}  // namespace penstock
