#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

// On `rank`, `later` needs what `earlier` makes. Only judges pairs that are both there.
void require_before(const Schedule& schedule, int rank, Step earlier, Step later,
                    std::string_view problem, Violations& violations) {
  if (earlier == kAbsent || later == kAbsent || earlier < later) return;
  if (earlier == later) {
    violations.add(Rule::Order, {rank, later},
                   "{}: the parts of one container may run at the same time", problem);
  } else {
    violations.add(Rule::Order, {rank, later}, "{} ({} is at step {})", problem,
                   to_string(action_at(schedule, {rank, earlier})), earlier);
  }
}

}  // namespace

void check_order(const ActionIndex& index, Violations& violations) {
  const Schedule& schedule = index.schedule();
  for (int stage = 0; stage < index.num_stages(); ++stage) {
    const int rank = index.placement().rank_of(stage);
    const bool follows_local = index.share_rank(stage - 1, stage);
    const bool precedes_local = index.share_rank(stage, stage + 1);
    for (int microbatch = 0; microbatch < index.num_microbatches(); ++microbatch) {
      const Step forward = index.step(ActionKind::Forward, stage, microbatch);
      const Step gradient = index.gradient_step(stage, microbatch);
      require_before(schedule, rank, forward, gradient, "backward before its forward", violations);
      require_before(schedule, rank, index.step(ActionKind::InputBackward, stage, microbatch),
                     index.step(ActionKind::WeightBackward, stage, microbatch),
                     "weight gradient before its input gradient", violations);
      if (follows_local) {
        require_before(schedule, rank, index.step(ActionKind::Forward, stage - 1, microbatch),
                       forward, "forward before that of the stage it follows", violations);
      }
      if (precedes_local) {
        require_before(schedule, rank, index.gradient_step(stage + 1, microbatch), gradient,
                       "backward before that of the stage it precedes", violations);
      }
    }
  }
}

}  // namespace penstock
