#include "penstock/run/training/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/stage/shared_claims.h"

namespace penstock {
namespace {

// Whether the stage that uses the parameter first is one of `local`. All processes agree on it.
bool is_counted_here(const std::string& name, const SharedClaims& claims, const StageList& local) {
  const auto& uses = claims.uses();
  const auto first = std::find_if(uses.begin(), uses.end(),
                                  [&](const SharedPlace& place) { return place.name == name; });
  return first == uses.end() || std::any_of(local.begin(), local.end(), [&](const auto& stage) {
           return stage->index() == first->stage;
         });
}

}  // namespace

bool GradientNorm::is_finite() const {
  return std::isfinite(norm);
}

GradientNorm judge_gradients(const SquareSum& squares, double max_norm) {
  if (!(max_norm > 0)) {
    throw ArgumentError(
        fmt::format("gradients cannot be clipped to a norm of {}; it must be above 0", max_norm));
  }
  GradientNorm result{.norm = squares.norm()};
  constexpr double kPyTorchMargin = 1e-6;
  if (result.is_finite()) result.scale = std::min(1.0, max_norm / (result.norm + kPyTorchMargin));
  return result;
}

SquareSum gradient_squares(std::span<const at::Tensor> parameters) {
  SquareSum squares;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) squares.add(parameter.grad());
  }
  return squares;
}

void scale_gradients(std::span<const at::Tensor> parameters, double scale) {
  if (scale == 1) return;
  const at::NoGradGuard no_grad;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameter.mutable_grad().mul_(scale);
  }
}

GradientNorm clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm) {
  const GradientNorm result = judge_gradients(gradient_squares(parameters), max_norm);
  scale_gradients(parameters, result.scale);
  return result;
}

GradientNorm clip_grad_norm(PipelineSchedule& pipeline, double max_norm) {
  std::vector<PipelineStage*> stages;
  for (const auto& stage : pipeline.stages()) stages.push_back(stage.get());
  const CountedParameters counted = counted_parameters(stages, pipeline.stages());
  SquareSum own = gradient_squares(counted.whole);
  const SquareSum slices = gradient_squares(counted.slices);
  for (const at::Tensor& told : pipeline.exchange_with_replicas(slices.to_tensor())) {
    own += SquareSum::from_tensor(told);
  }
  SquareSum all;
  for (const at::Tensor& told : pipeline.exchange(own.to_tensor())) {
    all += SquareSum::from_tensor(told);
  }
  const GradientNorm result = judge_gradients(all, max_norm);
  scale_gradients(pipeline.parameters(), result.scale);
  return result;
}

CountedParameters counted_parameters(std::span<PipelineStage* const> stages,
                                     const StageList& local) {
  CountedParameters counted;
  for (const PipelineStage* stage : stages) {
    const bool is_sharded =
        stage->parameter_actions() != nullptr && stage->parameter_actions()->is_sharded();
    std::vector<at::Tensor>& list = is_sharded ? counted.slices : counted.whole;
    std::unordered_set<const c10::TensorImpl*> counted_elsewhere;
    for (const auto& [name, tensor] : stage->module().shared_parameters()) {
      if (!is_counted_here(name, *stage->module().shared_claims(), local)) {
        counted_elsewhere.insert(tensor.unsafeGetTensorImpl());
      }
    }
    for (const at::Tensor& parameter : stage->parameters()) {
      if (!counted_elsewhere.contains(parameter.unsafeGetTensorImpl())) {
        list.push_back(parameter);
      }
    }
  }
  return counted;
}

}  // namespace penstock
