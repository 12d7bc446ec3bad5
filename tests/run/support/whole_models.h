#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "penstock/run/capture/trace.h"

namespace penstock {

// A model as a user would write it, with places where pipe_split() may be called.
class WholeModule : public torch::nn::Module {
 public:
  virtual c10::IValue forward(const std::vector<c10::IValue>& inputs) = 0;

  std::set<int> markers;  // the places where it is

 protected:
  void place(int number) const;
};

struct WholeModel {
  std::string name;
  std::function<std::shared_ptr<WholeModule>()> make;  // the same tensors every time
  std::function<std::vector<c10::IValue>(int rows)> make_inputs;
  std::function<torch::Tensor(int rows)> make_targets;
  std::function<torch::Tensor(const c10::IValue& output, const torch::Tensor& target)> loss;
  std::vector<std::string> modules;  // begin where the places are, in order

  friend void PrintTo(const WholeModel& model, std::ostream* out) { *out << model.name; }
};

TraceSource trace_source(const std::shared_ptr<WholeModule>& module);

WholeModel whole_mlp();
WholeModel whole_conv_net();         // residual blocks with batch norm
WholeModel whole_u_net();            // skips over several stages
WholeModel whole_gpt();              // the embedding is the head's weight, too
WholeModel whole_encoder_decoder();  // a late input, and a value that all late stages use
WholeModel whole_two_towers();       // a dict as output, with an early value in it
std::vector<WholeModel> all_whole_models();

}  // namespace penstock
