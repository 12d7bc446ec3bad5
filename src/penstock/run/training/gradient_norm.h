#pragma once

#include <limits>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/training/square_sum.h"

namespace penstock {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();  // for norms

// What the gradients of a step are like, over all parameters of all ranks.
struct GradientNorm {
  double norm = 0;   // infinite, or not a number, if an element of a gradient is
  double scale = 1;  // what gradients are multiplied with; below 1 if the norm exceeds its limit

  bool is_finite() const;
  bool is_clipped() const { return scale < 1; }
};

// The norm of the gradients with these squares, and the scale that brings it to `max_norm`: as in
// PyTorch, max_norm / (norm + 1e-6) if that is below 1. Gradients that are not finite have scale 1.
// Throws ArgumentError unless `max_norm` is above 0.
GradientNorm judge_gradients(const SquareSum& squares, double max_norm);

// Of the parameters that have gradients; each tensor once, however often it is listed.
SquareSum gradient_squares(std::span<const at::Tensor> parameters);

// Multiplies the gradients in place; with a scale of 1 it leaves them alone.
void scale_gradients(std::span<const at::Tensor> parameters, double scale);

// Clips the gradients of `parameters`, so that their norm is at most `max_norm`. If one is not
// finite, nothing is changed: look at the result, and leave the optimizer's step out.
GradientNorm clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);

// The same over all stages of a pipeline, and all of its processes and replicas, which must all
// call it at the same time. The norm is that of one process that has all the parameters, to the
// bit: the sum of squares is exact.
GradientNorm clip_grad_norm(PipelineSchedule& pipeline, double max_norm);

// The parameters of `stages` that this process counts in a norm over all processes: all, but for
// those that a stage of another process counts because it uses them first. `local` are all stages
// of this process.
struct CountedParameters {
  std::vector<at::Tensor> whole;   // replicas have the same, with the same gradients
  std::vector<at::Tensor> slices;  // of sharded stages; each replica has its own
};
CountedParameters counted_parameters(std::span<PipelineStage* const> stages,
                                     const StageList& local);

}  // namespace penstock
