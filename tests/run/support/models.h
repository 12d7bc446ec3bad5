#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// A slice of a test model: one tensor in, one tensor out.
class Block : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};
using Blocks = std::vector<std::shared_ptr<Block>>;

// A model that can be cut into any number of stages, with data and loss to train it on.
struct TestModel {
  std::string name;
  std::function<Blocks(int num_stages)> make;  // the same parameters on every call
  std::function<torch::Tensor(int rows)> make_inputs;
  std::function<torch::Tensor(int rows)> make_targets;
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> loss;
};

TestModel mlp_model();       // linear layers with GELU
TestModel gpt_model();       // embedding, attention, layer norm, 3-D linear layers, cross entropy
TestModel conv_net_model();  // convolutions and batch norms, with a skip inside of each stage
const std::vector<TestModel>& test_models();

StageList make_stages(const Blocks& blocks);

// Random data that depends on these only.
torch::Tensor random_data(std::uint64_t seed, torch::IntArrayRef sizes);

std::vector<torch::Tensor> parameters_of(const Blocks& blocks);

}  // namespace penstock
