#pragma once

#include <string>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// An action failed. what() is "rank 1, step 17 (2B5): <cause>".
class StepError : public Error {
 public:
  enum class Origin {
    Action,     // what the rank did by itself
    Transport,  // a message did not come, or could not go: another rank may be the cause
  };

  StepError(Position position, const Action& action, const std::string& cause,
            Origin origin = Origin::Action);

  Position position() const { return position_; }
  const std::string& action() const { return action_; }
  const std::string& cause() const { return cause_; }
  Origin origin() const { return origin_; }

 private:
  Position position_;
  std::string action_;
  std::string cause_;
  Origin origin_;
};

}  // namespace penstock
