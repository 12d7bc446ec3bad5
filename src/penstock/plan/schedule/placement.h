#pragma once

#include <utility>
#include <vector>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Which rank holds which stage.
class Placement {
 public:
  static constexpr int kUnplaced = -1;

  Placement() = default;
  explicit Placement(std::vector<int> rank_of_stage) : ranks_(std::move(rank_of_stage)) {}

  int num_stages() const { return static_cast<int>(ranks_.size()); }
  int rank_of(int stage) const { return ranks_[static_cast<std::size_t>(stage)]; }
  const std::vector<int>& ranks() const { return ranks_; }

  // The stages of `rank`, ascending.
  std::vector<int> stages_of(int rank) const;

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  std::vector<int> ranks_;
};

// Stage s on rank s mod num_ranks; any number of stages. Throws ArgumentError without a rank.
Placement looped_placement(int num_ranks, int num_stages);

// Down the ranks and up again: 0 1 2 2 1 0 0 1 2 ... Throws ArgumentError unless every rank gets
// the same number of stages.
Placement v_placement(int num_ranks, int num_stages);

// Where the actions of `schedule` put each stage: the first rank that mentions it. A stage that
// no action mentions is kUnplaced. `num_stages` is the schedule's extent.
Placement placement_of(const Schedule& schedule, int num_stages);

}  // namespace penstock
