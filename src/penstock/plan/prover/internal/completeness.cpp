#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

// The backward of a microbatch is either one B, or one I and one W.
void check_backward(const ActionIndex& index, int stage, int microbatch, Violations& violations) {
  const int rank = index.placement().rank_of(stage);
  const Step full = index.step(ActionKind::FullBackward, stage, microbatch);
  const Step input = index.step(ActionKind::InputBackward, stage, microbatch);
  const Step weight = index.step(ActionKind::WeightBackward, stage, microbatch);
  const bool has_full = full != kAbsent;
  const bool has_input = input != kAbsent;
  const bool has_weight = weight != kAbsent;
  if (has_full) {
    for (const Step half : {input, weight}) {
      if (half == kAbsent) continue;
      violations.add(Rule::Completeness, {rank, half},
                     "microbatch {} also has a full backward, {}B{} at step {}", microbatch, stage,
                     microbatch, full);
    }
    return;
  }
  if (!has_input && !has_weight) {
    violations.add(Rule::Completeness, {rank, -1}, "{}B{} is missing (or {}I{} and {}W{})", stage,
                   microbatch, stage, microbatch, stage, microbatch);
  } else if (!has_weight) {
    violations.add(Rule::Completeness, {rank, input}, "{}W{}, its weight gradient, is missing",
                   stage, microbatch);
  } else if (!has_input) {
    violations.add(Rule::Completeness, {rank, weight}, "{}I{}, its input gradient, is missing",
                   stage, microbatch);
  }
}

}  // namespace

void check_completeness(const ActionIndex& index, Violations& violations) {
  for (int stage = 0; stage < index.num_stages(); ++stage) {
    if (index.placement().rank_of(stage) == Placement::kUnplaced) {
      violations.add(Rule::Completeness, {}, "stage {} has no actions on any rank", stage);
      continue;
    }
    const int rank = index.placement().rank_of(stage);
    for (int microbatch = 0; microbatch < index.num_microbatches(); ++microbatch) {
      if (index.step(ActionKind::Forward, stage, microbatch) == kAbsent) {
        violations.add(Rule::Completeness, {rank, -1}, "{}F{} is missing", stage, microbatch);
      }
      if (!index.is_forward_only()) check_backward(index, stage, microbatch, violations);
    }
  }
}

}  // namespace penstock
