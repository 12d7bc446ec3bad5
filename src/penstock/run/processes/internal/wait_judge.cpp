#include "penstock/run/processes/internal/wait_judge.h"

#include <algorithm>
#include <vector>

namespace penstock {
namespace {

// Who waits for what was sent already does not need the sender to move.
bool has_sent(const RankPosition& sender, const PeerWait& wait, const RankPosition& waiting) {
  const bool is_done = sender.num_steps == waiting.num_steps && sender.finished > wait.send_step;
  return wait.send_step >= 0 && (is_done || sender.num_steps > waiting.num_steps);
}

}  // namespace

void WaitJudge::look(const RankPosition& self, Time now) {
  if (self.is_waiting && self == self_.position) return;
  self_ = {self, now};
  peers_.clear();
}

void WaitJudge::look_at(int rank, const ToldPosition& told, Time now) {
  const auto [entry, is_new] = peers_.try_emplace(rank, Sight{told.position, self_.since});
  Sight& sight = entry->second;
  if (is_new || sight.position == told.position) return;
  sight = {told.position, std::max(sight.since, now - told.age)};
}

RankPosition WaitJudge::position_of(int rank) const {
  const auto sight = peers_.find(rank);
  return sight == peers_.end() ? RankPosition() : sight->second.position;
}

void WaitJudge::look_along_waits(const Schedule& program, int rank,
                                 const std::function<ToldPosition(int rank)>& position_of,
                                 Time now) {
  std::map<int, ToldPosition> told;
  const auto find = [&](int peer) -> const ToldPosition& {
    const auto [entry, is_new] = told.try_emplace(peer);
    if (is_new) entry->second = peer == rank ? ToldPosition{self_.position} : position_of(peer);
    return entry->second;
  };
  std::vector<int> chain = {rank};
  const auto join = [&](int peer) {
    if (std::find(chain.begin(), chain.end(), peer) != chain.end()) return;
    look_at(peer, find(peer), now);
    chain.push_back(peer);
  };
  for (const PeerWait& wait : waits_of(program, rank, self_.position)) join(wait.rank);
  for (std::size_t index = 1; index < chain.size(); ++index) {
    const RankPosition& peer = find(chain[index]).position;
    if (!peer.is_in_step || !peer.is_waiting) continue;
    if (peer.num_steps != self_.position.num_steps) {
      // Another step may have another program: it may wait for anybody.
      for (int other = 0; other < program.num_ranks(); ++other) join(other);
      return;
    }
    for (const PeerWait& wait : waits_of(program, chain[index], peer)) {
      if (!has_sent(find(wait.rank).position, wait, peer)) join(wait.rank);
    }
  }
}

std::chrono::nanoseconds WaitJudge::stalled_for(Time now) const {
  if (!self_.position.is_waiting) return {};
  Time since = self_.since;
  for (const auto& [rank, sight] : peers_) since = std::max(since, sight.since);
  return now - since;
}

}  // namespace penstock
