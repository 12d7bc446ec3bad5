#include "penstock/run/executor/step_error.h"

#include <fmt/format.h>

namespace penstock {

StepError::StepError(Position position, const Action& action, const std::string& cause,
                     Origin origin)
    : Error(fmt::format("rank {}, step {} ({}): {}", position.rank, position.step,
                        to_string(action), cause)),
      position_(position),
      action_(to_string(action)),
      cause_(cause),
      origin_(origin) {}

}  // namespace penstock
