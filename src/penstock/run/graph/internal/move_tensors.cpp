#include "penstock/run/graph/internal/move_tensors.h"

#include <unordered_map>

namespace penstock {
namespace {

class Mover {
 public:
  explicit Mover(at::Device device) : device_(device) {}

  void move(at::Tensor& tensor) {
    const auto known = moved_.find(tensor.unsafeGetTensorImpl());
    if (known != moved_.end()) {
      tensor = known->second;
      return;
    }
    const at::Tensor original = tensor;
    tensor = moved(original);
    moved_.emplace(original.unsafeGetTensorImpl(), tensor);
    kept_.push_back(original);
  }

 private:
  at::Tensor moved(const at::Tensor& tensor) const {
    if (tensor.device() == device_) return tensor;
    at::Tensor copy = tensor.detach().to(device_);
    if (tensor.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(copy.key_set())) {
      tensor.set_data(copy);
      return tensor;
    }
    copy.set_requires_grad(tensor.requires_grad());
    return copy;
  }

  at::Device device_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> moved_;
  std::vector<at::Tensor> kept_;  // so that no address is used again
};

}  // namespace

void move_tensors(StageGraph& stage, at::Device device) {
  Mover mover(device);
  for (StageGraph::Tensor& tensor : stage.tensors) mover.move(tensor.tensor);
  for (StageGraph::Tensor& use : stage.shared) mover.move(use.tensor);
  for (auto& [name, tensor] : stage.aliases) mover.move(tensor);
}

}  // namespace penstock
