#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "penstock/run/optimizer/optimizer_state.h"

namespace penstock {

// A copy of all that an optimizer's step changes, and of some tensors besides, to go back to. The
// memory of the copies is used again.
class Snapshot {
 public:
  // `others` are copied too. `optimizer` must outlive this object.
  Snapshot(torch::optim::Optimizer& optimizer, std::vector<at::Tensor> others);

  // Copies what is there now. Parameters without a gradient are left out: no step changes them.
  void take();

  // Puts everything back as it was when take() was called.
  void restore();

 private:
  struct Copy {
    at::Tensor copy;
    bool is_taken = false;

    void take(const at::Tensor& tensor);
    void restore(const at::Tensor& tensor) const;
  };
  struct Parameter {
    at::Tensor tensor;
    Copy value;
    std::vector<StateEntry> state;  // with the optimizer's own tensors
    std::vector<Copy> state_copies;
  };

  torch::optim::Optimizer& optimizer_;
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> others_;
  std::vector<Copy> other_copies_;
};

}  // namespace penstock
