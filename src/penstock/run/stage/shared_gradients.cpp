#include "penstock/run/stage/shared_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

// The gradients stay as they are: others may hold them, too.
at::Tensor sum_of(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  at::Tensor sum;
  bool is_own = false;
  for (std::size_t index = gradients.size(); index-- > 0;) {
    const at::Tensor& gradient = gradients[index];
    if (!gradient.defined()) continue;
    if (!sum.defined()) {
      sum = gradient;
    } else if (is_own && sum.layout() == at::kStrided && gradient.layout() == at::kStrided &&
               sum.dtype() == gradient.dtype()) {
      sum.add_(gradient);
    } else {
      sum = sum.layout() == at::kStrided ? sum + gradient : gradient + sum;  // dense + sparse
      is_own = true;
    }
  }
  return sum;
}

// Through the engine, which calls the hooks of the parameter as it does in a backward.
void accumulate(const at::Tensor& parameter, at::Tensor gradient) {
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::impl::gradient_edge(parameter)}, {std::move(gradient)},
      /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace

SharedGradients::SharedGradients(std::vector<SharedUse> uses,
                                 const std::function<std::vector<int>(int stage)>& order_of) {
  std::stable_sort(uses.begin(), uses.end(), [](const SharedUse& left, const SharedUse& right) {
    return left.stage < right.stage;
  });
  for (SharedUse& use : uses) {
    auto parameter = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& other) { return other.name == use.name; });
    if (parameter == parameters_.end()) {
      parameter = parameters_.insert(parameters_.end(), Parameter());
      parameter->name = use.name;
      parameter->order = order_of(use.stage);
      parameter->pending.resize(parameter->order.size());
    }
    if (use.parameter.defined()) {
      if (parameter->tensor.defined() && !parameter->tensor.is_same(use.parameter)) {
        throw ArgumentError(fmt::format(
            "stage {} has another tensor for the shared parameter {} than the stages before it; "
            "take all stages from one model",
            use.stage, quote(use.name)));
      }
      parameter->tensor = std::move(use.parameter);
    }
    places_.push_back({use.stage, static_cast<std::size_t>(parameter - parameters_.begin()),
                       parameter->num_uses++});
  }
  begin_step();
}

void SharedGradients::begin_step() {
  const std::lock_guard lock(mutex_);
  for (Parameter& parameter : parameters_) {
    for (Pending& pending : parameter.pending) {
      pending.gradients.assign(parameter.num_uses, at::Tensor());
      pending.num_missing = parameter.num_uses;
    }
    parameter.num_done = 0;
    parameter.is_combining = false;
  }
}

void SharedGradients::add(int stage, int microbatch, std::span<at::Tensor> gradients) {
  auto place = std::find_if(places_.begin(), places_.end(),
                            [stage](const Place& other) { return other.stage == stage; });
  std::unique_lock lock(mutex_);
  for (at::Tensor& gradient : gradients) {
    PENSTOCK_ASSERT(place != places_.end() && place->stage == stage, "one gradient per use");
    Parameter& parameter = parameters_[place->parameter];
    Pending& pending = parameter.pending[static_cast<std::size_t>(microbatch)];
    pending.gradients[place->use] = std::move(gradient);
    --pending.num_missing;
    combine_complete(parameter, lock);
    ++place;
  }
}

std::vector<at::Tensor> SharedGradients::pending(int stage, int microbatch) {
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor> gradients;
  for (const Place& place : places_) {
    if (place.stage != stage) continue;
    const Parameter& parameter = parameters_[place.parameter];
    gradients.push_back(
        parameter.pending[static_cast<std::size_t>(microbatch)].gradients[place.use]);
  }
  return gradients;
}

// One thread at a time works on a parameter. The others leave what they bring and go on.
void SharedGradients::combine_complete(Parameter& parameter, std::unique_lock<std::mutex>& lock) {
  if (parameter.is_combining) return;
  parameter.is_combining = true;
  while (parameter.num_done < parameter.order.size()) {
    Pending& pending =
        parameter.pending[static_cast<std::size_t>(parameter.order[parameter.num_done])];
    if (pending.num_missing > 0) break;
    lock.unlock();
    at::Tensor sum = sum_of(pending.gradients);
    for (at::Tensor& gradient : pending.gradients) gradient.reset();
    if (sum.defined() && parameter.tensor.defined()) accumulate(parameter.tensor, std::move(sum));
    lock.lock();
    ++parameter.num_done;
  }
  parameter.is_combining = false;
}

}  // namespace penstock
