#include "penstock/plan/prover/internal/action_index.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

std::optional<Extent> find_extent(const Schedule& schedule, Extent mentioned,
                                  const CheckOptions& options, Violations& violations) {
  const Extent extent = options.extent.value_or(mentioned);
  if (mentioned.num_stages > extent.num_stages ||
      mentioned.num_microbatches > extent.num_microbatches) {
    violations.add(Rule::Form, {},
                   "actions reach stage {} and microbatch {}, but there are {} stages and {} "
                   "microbatches",
                   mentioned.num_stages - 1, mentioned.num_microbatches - 1, extent.num_stages,
                   extent.num_microbatches);
    return std::nullopt;
  }
  if (extent.num_stages < 1 || extent.num_microbatches < 1) {
    violations.add(Rule::Form, {}, "no rank computes anything");
    return std::nullopt;
  }
  // A stray index such as 2000000000 must not allocate a table of that size.
  const auto num_cells = static_cast<std::uint64_t>(extent.num_stages) *
                         static_cast<std::uint64_t>(extent.num_microbatches);
  std::uint64_t num_entries = 0;
  for (const std::vector<Action>& actions : schedule.ranks) num_entries += actions.size();
  if (num_cells > 4 * num_entries + 4096) {
    violations.add(Rule::Form, {},
                   "actions reach stage {} and microbatch {}, which makes {} forwards necessary, "
                   "but the lists of all ranks together have {} entries",
                   extent.num_stages - 1, extent.num_microbatches - 1, num_cells, num_entries);
    return std::nullopt;
  }
  return extent;
}

ActionIndex::ActionIndex(const Schedule& schedule, Extent extent, Violations& violations)
    : schedule_(schedule), extent_(extent), placement_(placement_of(schedule, extent.num_stages)) {
  for (std::size_t kind = 0; kind < steps_.size(); ++kind) {
    if (!has_microbatch(static_cast<ActionKind>(kind))) continue;
    steps_[kind] = MicrobatchGrid<Step>(extent, kAbsent);
  }
  // The last other rank on which a stage was reported, so that each is reported once.
  std::vector<int> reported_rank(static_cast<std::size_t>(extent_.num_stages), -1);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<Action>& actions = schedule.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Position position{rank, step};
      for_each_part(actions[static_cast<std::size_t>(step)], [&](const Action& part) {
        if (part.kind == ActionKind::Idle) return;
        if (placement_.rank_of(part.stage) == rank) {
          if (part.microbatch >= 0) add(part, position, violations);
        } else if (reported_rank[static_cast<std::size_t>(part.stage)] != rank) {
          reported_rank[static_cast<std::size_t>(part.stage)] = rank;
          violations.add(Rule::Placement, position, "stage {} already has actions on rank {}",
                         part.stage, placement_.rank_of(part.stage));
        }
      });
    }
  }
}

void ActionIndex::add(const Action& part, Position position, Violations& violations) {
  if (makes_input_gradient(part.kind) || makes_weight_gradient(part.kind)) is_forward_only_ = false;
  Step& known = steps_[static_cast<std::size_t>(part.kind)].at(part.stage, part.microbatch);
  if (known != kAbsent) {
    violations.add(Rule::Completeness, position, "{} runs twice, first at step {}", to_string(part),
                   known);
  } else {
    known = position.step;
  }
}

bool ActionIndex::is_placed(int stage) const {
  return stage >= 0 && stage < num_stages() && placement_.rank_of(stage) != Placement::kUnplaced;
}

bool ActionIndex::crosses_ranks(int from_stage, int to_stage) const {
  return is_placed(from_stage) && is_placed(to_stage) &&
         placement_.rank_of(from_stage) != placement_.rank_of(to_stage);
}

bool ActionIndex::share_rank(int from_stage, int to_stage) const {
  return is_placed(from_stage) && is_placed(to_stage) &&
         placement_.rank_of(from_stage) == placement_.rank_of(to_stage);
}

}  // namespace penstock
