#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace penstock {

// Makes nodes drop what they saved in the forward as soon as they were executed, in a run of the
// engine that keeps the graph for others. Allocates nothing for nodes that have no hooks of others.
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

  // A node's list of hooks, which is exchanged for its own.
  using List = std::vector<std::unique_ptr<torch::autograd::FunctionPostHook>>;

  static List take_off(const Hook& hook);

  std::vector<Hook*> placed_;  // each belongs to its node
  std::vector<List> spare_;    // of one hook each
};

}  // namespace penstock
