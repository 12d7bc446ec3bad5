#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "penstock/run/processes/internal/rank_position.h"

namespace penstock {

// Decides when a wait has lasted too long: when neither this rank nor any of those it waits for has
// moved for the deadline. Time is passed in.
class WaitJudge {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // This rank is at `self` now. Forgets everything if that is not where it was, or it does not
  // wait.
  void look(const RankPosition& self, Time now);

  // The rank that is waited for is at `position` now.
  void look_at_peer(int rank, const RankPosition& position, Time now);

  // For how long nothing has moved; zero while this rank does not wait.
  std::chrono::nanoseconds stalled_for(Time now) const;

 private:
  struct Sight {
    RankPosition position;
    Time since;
  };
  Sight self_;
  std::map<int, Sight> peers_;
};

}  // namespace penstock
