#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "penstock/run/processes/internal/rank_position.h"

namespace penstock {

// Decides when a wait has lasted too long: when neither this rank nor any of those it waits for,
// be it by way of others that wait themselves, has moved for the deadline. Time is passed in.
class WaitJudge {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // This rank is at `self` now. Forgets everything if that is not where it was, or it does not
  // wait.
  void look(const RankPosition& self, Time now);

  // Looks at all that `rank` of `program`, this one, waits for: at those of its own waits and,
  // where one of them waits too, at those of its waits. `position_of` is asked once for each.
  void look_along_waits(const Schedule& program, int rank,
                        const std::function<ToldPosition(int rank)>& position_of, Time now);

  // As it was seen last.
  RankPosition position_of(int rank) const;

  // For how long nothing has moved; zero while this rank does not wait.
  std::chrono::nanoseconds stalled_for(Time now) const;

 private:
  struct Sight {
    RankPosition position;
    Time since;
  };
  void look_at(int rank, const ToldPosition& told, Time now);

  Sight self_;
  std::map<int, Sight> peers_;
};

}  // namespace penstock
