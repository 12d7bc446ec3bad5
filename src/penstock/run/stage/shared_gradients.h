#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace penstock {

// One use of a parameter that several stages use.
struct SharedUse {
  int stage = 0;
  std::string name;      // of the parameter; the same in all stages
  at::Tensor parameter;  // undefined if the stage is in another process
};

// Adds up the gradients of parameters that several stages use, so that training gives the bits it
// gives in one process: microbatch by microbatch, and within one from the last use of the model to
// the first, because that is how libtorch's engine goes through a graph. What is complete is added
// to the parameter at once, hooks included, and not kept until the step ends.
class SharedGradients {
 public:
  // `uses` has the uses of each stage in the order of its module. `order_of(stage)` lists the
  // microbatches in the order in which the stage makes its weight gradients; that of the first
  // stage that uses a parameter holds for all. Throws ArgumentError if a name has two tensors.
  SharedGradients(std::vector<SharedUse> uses,
                  const std::function<std::vector<int>(int stage)>& order_of);

  // Forgets what an earlier step has left.
  void begin_step();

  // Takes the gradients of all uses by `stage`, undefined where there is none. Safe from any
  // thread. Stages of other processes are served by whoever brings their gradients here.
  void add(int stage, int microbatch, std::span<at::Tensor> gradients);

  // What add() was given and is not yet added, because uses by other stages are missing.
  std::vector<at::Tensor> pending(int stage, int microbatch);

 private:
  struct Pending {
    std::vector<at::Tensor> gradients;  // by use
    std::size_t num_missing = 0;
  };
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    std::size_t num_uses = 0;
    std::vector<int> order;        // of microbatches
    std::vector<Pending> pending;  // by microbatch
    std::size_t num_done = 0;      // of those in `order`
    bool is_combining = false;     // some thread is at it
  };
  // Where the gradient of a use belongs.
  struct Place {
    int stage = 0;
    std::size_t parameter = 0;
    std::size_t use = 0;
  };

  void combine_complete(Parameter& parameter, std::unique_lock<std::mutex>& lock);

  std::vector<Place> places_;  // as given
  std::mutex mutex_;           // guards parameters_, but for what is being combined
  std::vector<Parameter> parameters_;
};

}  // namespace penstock
