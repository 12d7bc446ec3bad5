#pragma once

#include <cstddef>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace penstock {

// Where a backward starts, and with which gradients; in two lists, as the engine takes them.
struct Roots {
  torch::autograd::edge_list edges;
  torch::autograd::variable_list gradients;

  std::size_t size() const { return edges.size(); }
  void add(torch::autograd::Edge edge, at::Tensor gradient) {
    edges.push_back(std::move(edge));
    gradients.push_back(std::move(gradient));
  }
  void insert(std::size_t place, torch::autograd::Edge edge, at::Tensor gradient) {
    const auto offset = static_cast<std::ptrdiff_t>(place);
    edges.insert(edges.begin() + offset, std::move(edge));
    gradients.insert(gradients.begin() + offset, std::move(gradient));
  }
  void keep_first(std::size_t count) {
    edges.resize(count);
    gradients.resize(count);
  }
};

}  // namespace penstock
