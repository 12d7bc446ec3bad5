#include "penstock/run/processes/internal/wait_judge.h"

#include <algorithm>

namespace penstock {

void WaitJudge::look(const RankPosition& self, Time now) {
  if (self.is_waiting && self == self_.position) return;
  self_ = {self, now};
  peers_.clear();
}

void WaitJudge::look_at_peer(int rank, const RankPosition& position, Time now) {
  const auto [sight, is_new] = peers_.try_emplace(rank, Sight{position, self_.since});
  if (!is_new && !(sight->second.position == position)) sight->second = {position, now};
}

std::chrono::nanoseconds WaitJudge::stalled_for(Time now) const {
  if (!self_.position.is_waiting) return {};
  Time since = self_.since;
  for (const auto& [rank, sight] : peers_) since = std::max(since, sight.since);
  return now - since;
}

}  // namespace penstock
