#include "penstock/run/pipeline/internal/require_options.h"

#include <cstddef>

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {

void require_options(const ScheduleOptions& options) {
  if (options.loss_weights == LossWeights::ByRows && !options.scale_grads) {
    throw ArgumentError(
        "LossWeights::ByRows says what each microbatch counts in a mean, but scale_grads = false "
        "asks for a sum; leave one of them out");
  }
  if (options.split.allow_fewer) {
    throw ArgumentError(
        "split.allow_fewer is of no use to a pipeline, whose schedule has a fixed number of "
        "microbatches; leave it out, and give each step at least as many rows");
  }
  for (std::size_t index = 0; index < kNumActionKinds; ++index) {
    const auto kind = static_cast<ActionKind>(index);
    if (!options.custom_functions[kind] || !(is_send(kind) || is_receive(kind))) continue;
    throw ArgumentError(fmt::format(
        "there is a custom function for {}, which only the executor can run; give one to the "
        "computation that makes or takes the message, or watch with an Observer",
        kind_text(kind)));
  }
}

}  // namespace penstock
