#include "penstock/plan/report/internal/waits.h"

#include <algorithm>

namespace penstock {
namespace {

const ActionTime& time_at(const Simulation& simulation, Position position) {
  return simulation
      .times[static_cast<std::size_t>(position.rank)][static_cast<std::size_t>(position.step)];
}

// Where a rank is in its step: what decides between warm-up, cool-down and imbalance.
struct Progress {
  bool has_backwards = false;
  bool has_computed = false;
  bool has_run_backward = false;
  int forwards_left = 0;

  explicit Progress(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.kind == ActionKind::Forward) ++forwards_left;
        if (makes_input_gradient(part.kind)) has_backwards = true;
      });
    }
  }

  IdleCause cause() const {
    if (!has_run_backward && (has_backwards || !has_computed)) return IdleCause::WarmUp;
    return forwards_left == 0 ? IdleCause::CoolDown : IdleCause::Imbalance;
  }

  void pass(const Action& action) {
    has_computed = true;
    for_each_part(action, [&](const Action& part) {
      if (part.kind == ActionKind::Forward) --forwards_left;
      if (makes_input_gradient(part.kind)) has_run_backward = true;
    });
  }
};

}  // namespace

WaitExplainer::WaitExplainer(const Schedule& program, const Simulation& simulation)
    : program_(program),
      simulation_(simulation),
      forwards_(extent_of(program)),
      input_gradients_(extent_of(program)) {
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const std::vector<Action>& actions = program.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      for_each_part(actions[static_cast<std::size_t>(step)], [&](const Action& part) {
        if (part.kind == ActionKind::Forward) {
          forwards_.at(part.stage, part.microbatch) = {rank, step};
        } else if (makes_input_gradient(part.kind)) {
          input_gradients_.at(part.stage, part.microbatch) = {rank, step};
        }
      });
    }
  }
}

Position WaitExplainer::producer_of(const Action& receive) const {
  return receive.kind == ActionKind::ReceiveForward
             ? forwards_.at(receive.stage - 1, receive.microbatch)
             : input_gradients_.at(receive.stage + 1, receive.microbatch);
}

Wait WaitExplainer::explain_compute(Position here, Duration free) const {
  const ActionTime& time = time_at(simulation_, here);
  Wait wait{.begin = free, .computed = free, .end = time.start};
  if (wait.time() == Duration::zero()) return wait;
  wait.source = time.cause;
  const Action& cause = action_at(program_, time.cause);
  if (is_receive(cause.kind)) {
    wait.source = producer_of(cause);
    wait.computed = std::clamp(time_at(simulation_, wait.source).end, free, time.start);
  }
  return wait;
}

std::vector<Wait> WaitExplainer::waits_of(int rank) const {
  const std::vector<Action>& actions = program_.actions_of(rank);
  Progress progress(actions);
  Duration free{};
  std::vector<Wait> waits;
  waits.reserve(actions.size());
  for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
    const Position here{rank, step};
    const Action& action = action_at(program_, here);
    const ActionTime& time = time_at(simulation_, here);
    Wait wait{.begin = free, .computed = free, .end = free};
    if (is_compute(action.kind)) {
      wait = explain_compute(here, free);
      wait.cause = progress.cause();
      progress.pass(action);
      free = time.end;
    } else if (is_send(action.kind) && time.end > free) {
      wait = {free, free, time.end, IdleCause::Transfer, time.cause};
      free = time.end;
    }
    waits.push_back(wait);
  }
  return waits;
}

}  // namespace penstock
