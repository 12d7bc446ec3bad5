#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/script.h>
#include <torch/torch.h>

namespace penstock {

// A model in a file of a newer PyTorch, and one training step as that PyTorch computed it.
// tools/make_fixtures.py writes both.
struct Fixture {
  std::filesystem::path model;  // TorchScript
  std::vector<c10::IValue> inputs;
  std::unordered_map<std::string, c10::IValue> keywords;
  torch::Tensor target;
  c10::IValue output;
  torch::Tensor loss;
  std::map<std::string, torch::Tensor> gradients;  // of the parameters that got one
  std::map<std::string, torch::Tensor> buffers;    // after the step
};

const std::vector<std::string>& fixture_names();
Fixture read_fixture(const std::string& name);

// Of a dict its entry "loss", otherwise the mean squared error.
torch::Tensor fixture_loss(const c10::IValue& output, const torch::Tensor& target);

}  // namespace penstock
