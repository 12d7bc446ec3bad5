#include "penstock/plan/generators/internal/deferred_weights.h"

#include <algorithm>

namespace penstock {

void append_deferred_weights(const InterleavedOrder& order, int rank, DeferredWeights options,
                             int warmup_idle, ActionList& list) {
  const int num_warmup = order.num_warmup(rank, options.lead_per_rank);
  const int lag = options.lag_per_rank * rank;
  const auto forward = [&](int index) {
    const auto [stage, microbatch] = order.forward(rank, index);
    list.forward(stage, microbatch);
  };
  const auto weight_backward = [&](int index) {
    const auto [stage, microbatch] = order.backward(rank, index);
    list.weight_backward(stage, microbatch);
  };

  list.reserve(static_cast<std::size_t>(order.size()) * 3 +
               static_cast<std::size_t>(rank + warmup_idle));
  for (int index = 0; index < num_warmup; ++index) forward(index);
  if (num_warmup > 0) list.idle(warmup_idle);
  for (int index = 0; index < order.size(); ++index) {
    if (index + num_warmup < order.size()) forward(index + num_warmup);
    const auto [stage, microbatch] = order.backward(rank, index);
    list.input_backward(stage, microbatch);
    if (index >= lag) weight_backward(index - lag);
  }
  for (int index = std::max(0, order.size() - lag); index < order.size(); ++index) {
    weight_backward(index);
  }
}

}  // namespace penstock
