#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace penstock {

// A model with parameters and buffers.
struct Net final : torch::nn::Module {
  explicit Net(std::uint64_t seed) {
    torch::manual_seed(seed);
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    last = register_module("last", torch::nn::Linear(4, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(norm(first(x)))); }

  torch::nn::Linear first = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  torch::nn::Linear last = nullptr;
};

inline void train(Net& net, torch::optim::Optimizer& optimizer, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  optimizer.zero_grad();
  net.forward(torch::randn({6, 3})).square().mean().backward();
  optimizer.step();
}

}  // namespace penstock
