#include "penstock/plan/schedule/placement.h"

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

void require_counts(int num_ranks, int num_stages) {
  if (num_ranks >= 1 && num_stages >= 0) return;
  throw ArgumentError(fmt::format(
      "a placement needs at least one rank and no negative number of stages, found {} and {}",
      num_ranks, num_stages));
}

}  // namespace

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (rank_of(stage) == rank) stages.push_back(stage);
  }
  return stages;
}

Placement looped_placement(int num_ranks, int num_stages) {
  require_counts(num_ranks, num_stages);
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(num_stages));
  for (int stage = 0; stage < num_stages; ++stage) ranks.push_back(stage % num_ranks);
  return Placement(std::move(ranks));
}

Placement v_placement(int num_ranks, int num_stages) {
  require_counts(num_ranks, num_stages);
  if (num_stages % num_ranks != 0) {
    throw ArgumentError(fmt::format(
        "a V placement gives every rank the same number of stages, but {} stages do not divide by "
        "{} ranks",
        num_stages, num_ranks));
  }
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(num_stages));
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_downward = (stage / num_ranks) % 2 == 0;
    const int offset = stage % num_ranks;
    ranks.push_back(is_downward ? offset : num_ranks - 1 - offset);
  }
  return Placement(std::move(ranks));
}

Placement placement_of(const Schedule& schedule, int num_stages) {
  std::vector<int> ranks(static_cast<std::size_t>(num_stages), Placement::kUnplaced);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const Action& action : schedule.actions_of(rank)) {
      for_each_part(action, [&](const Action& part) {
        if (part.stage < 0) return;
        int& placed = ranks[static_cast<std::size_t>(part.stage)];
        if (placed == Placement::kUnplaced) placed = rank;
      });
    }
  }
  return Placement(std::move(ranks));
}

}  // namespace penstock
