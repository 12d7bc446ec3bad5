#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace penstock {

// Makes nodes drop what they saved in the forward as soon as they were executed, in a run of the
// engine that keeps the graph for others.
class ReleaseHooks {
 public:
  void add(torch::autograd::Node& node);

  // Takes the hooks off their nodes, all of which still exist, and keeps them for the next add().
  void remove_all();

 private:
  struct Hook final : torch::autograd::FunctionPostHook {
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& inputs) override;

    torch::autograd::Node* node = nullptr;
  };

  std::vector<Hook*> placed_;  // each belongs to its node
  std::vector<std::unique_ptr<Hook>> spare_;
};

}  // namespace penstock
