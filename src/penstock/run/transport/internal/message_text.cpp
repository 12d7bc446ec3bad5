#include "penstock/run/transport/internal/message_text.h"

#include <fmt/format.h>

#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

std::string without_stage(MessageKey key) {
  return fmt::format("the {} of microbatch {}",
                     key.direction == Direction::Forward ? "activations" : "gradients",
                     key.microbatch);
}

}  // namespace

std::string describe(MessageKey key) {
  return fmt::format("{} for stage {}", without_stage(key), key.stage);
}

void throw_late(std::chrono::nanoseconds deadline, MessageKey key, int from_rank) {
  throw DeadlineError(fmt::format("waited {:.3g} s for {} from rank {}",
                                  std::chrono::duration<double>(deadline).count(),
                                  without_stage(key), from_rank));
}

}  // namespace penstock
