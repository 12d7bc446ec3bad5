#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

// What is known of a stage's parameters while walking down the list of its rank.
struct StageParameters {
  bool is_sharded = false;  // has any UNSHARD or RESHARD; without them its parameters are there
  bool has_backward = false;
  Position gathered;  // since when they have been unsharded
  Position reduced;
};

class ParameterWalk {
 public:
  ParameterWalk(const Schedule& schedule, Extent extent, Violations& violations)
      : schedule_(schedule),
        violations_(violations),
        stages_(static_cast<std::size_t>(extent.num_stages)) {
    for (const std::vector<Action>& actions : schedule.ranks) {
      for (const Action& action : actions) {
        const bool shards =
            action.kind == ActionKind::Unshard || action.kind == ActionKind::Reshard;
        if (shards) stage_of(action).is_sharded = true;
      }
    }
  }

  void run() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const std::vector<Action>& actions = schedule_.actions_of(rank);
      for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
        const Action& action = actions[static_cast<std::size_t>(step)];
        const bool concerns_parameters = !is_send(action.kind) && !is_receive(action.kind);
        if (action.kind == ActionKind::Idle || !concerns_parameters) continue;
        for_each_part(action, [&](const Action& part) { visit(part, {rank, step}); });
      }
    }
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      const StageParameters& parameters = stages_[stage];
      if (parameters.gathered.exists()) {
        violations_.add(Rule::Sharding, parameters.gathered,
                        "stage {} is never resharded after this", stage);
      }
      if (wants_reduction_ && parameters.has_backward && !parameters.reduced.exists()) {
        violations_.add(Rule::Reduction, {}, "{}REDUCE_GRAD is missing", stage);
      }
      if (parameters.reduced.exists() && !parameters.has_backward) {
        violations_.add(Rule::Reduction, parameters.reduced,
                        "stage {} has no backward, so there are no gradients to reduce", stage);
      }
    }
  }

 private:
  StageParameters& stage_of(const Action& part) {
    return stages_[static_cast<std::size_t>(part.stage)];
  }

  void visit(const Action& part, Position here) {
    StageParameters& parameters = stage_of(part);
    switch (part.kind) {
      case ActionKind::Unshard:
        if (parameters.gathered.exists()) {
          violations_.add(Rule::Sharding, here, "stage {} is unsharded already, since step {}",
                          part.stage, parameters.gathered.step);
        }
        parameters.gathered = here;
        wants_reduction_ = true;  // who gathers parameters also has to reduce their gradients
        break;
      case ActionKind::Reshard:
        if (!parameters.gathered.exists()) {
          violations_.add(Rule::Sharding, here, "stage {} is not unsharded", part.stage);
        }
        parameters.gathered = {};
        break;
      case ActionKind::ReduceGrad:
        if (parameters.reduced.exists()) {
          violations_.add(Rule::Reduction, here,
                          "the gradients of stage {} are reduced already, at step {}", part.stage,
                          parameters.reduced.step);
        }
        parameters.reduced = here;
        wants_reduction_ = true;
        break;
      default:
        if (!is_compute(part.kind)) break;
        if (parameters.is_sharded && !parameters.gathered.exists()) {
          violations_.add(Rule::Sharding, here, "the parameters of stage {} are not unsharded",
                          part.stage);
        }
        if (!makes_weight_gradient(part.kind)) break;
        parameters.has_backward = true;
        if (parameters.reduced.exists()) {
          violations_.add(Rule::Reduction, here,
                          "the gradients of stage {} are reduced too early, at step {}", part.stage,
                          parameters.reduced.step);
        }
    }
  }

  const Schedule& schedule_;
  Violations& violations_;
  std::vector<StageParameters> stages_;
  bool wants_reduction_ = false;
};

}  // namespace

void check_parameters(const Schedule& schedule, Extent extent, Violations& violations) {
  ParameterWalk(schedule, extent, violations).run();
}

}  // namespace penstock
