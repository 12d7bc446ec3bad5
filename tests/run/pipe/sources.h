#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/capture/trace.h"

namespace penstock {

// A model in a lambda, with the module that owns its parameters.
inline TraceSource source_of(std::function<c10::IValue(const std::vector<c10::IValue>&)> forward,
                             std::shared_ptr<torch::nn::Module> module = nullptr) {
  return {.forward = [forward = std::move(forward)](
                         const std::vector<c10::IValue>& inputs,
                         const KeywordArguments&) { return forward(inputs); },
          .module = std::move(module)};
}

inline torch::nn::Sequential three_layers() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4),
                               torch::nn::Linear(4, 2));
}

}  // namespace penstock
