#include "penstock/plan/search/internal/list_scheduler.h"

#include <algorithm>

#include <fmt/format.h>

#include "penstock/plan/search/internal/bounds.h"

namespace penstock {

std::string to_string(const Policy& policy) {
  std::string text =
      fmt::format("list scheduling, warm-up {:.2f}, steady {:.2f}",
                  policy.warmup_overshoot / 1000.0, policy.steady_overshoot / 1000.0);
  if (policy.idle_budget != Policy::kAsWorstRank) {
    text += fmt::format(", idle budget {:.3f} ms",
                        static_cast<double>(policy.idle_budget.count()) / 1e6);
  }
  if (policy.max_in_flight > 0) text += fmt::format(", at most {} in flight", policy.max_in_flight);
  if (!policy.deepest_forward_first) text += ", first stage forward first";
  if (!policy.deepest_input_first) text += ", first stage backward first";
  return text;
}

ListScheduler::ListScheduler(const SearchProblem& problem)
    : problem_(problem),
      stages_(problem.stages.size()),
      ranks_(problem.ranks.size()),
      wakeups_(problem.num_ranks()),
      wires_(problem.num_ranks()),
      order_(problem.ranks.size()) {
  for (int stage = 0; stage < problem.num_stages(); ++stage) {
    const SearchStage& costs = problem.stage(stage);
    state_of_stage(stage).reserve_bytes = reserve_bytes(problem, costs.rank, costs.slot);
  }
}

bool ListScheduler::run(const Policy& policy, const Score& best) {
  start(policy);
  return play(best);
}

bool ListScheduler::run_with_warmup(const Policy& policy, const Score& best,
                                    const std::vector<int>& warmup_depths) {
  start(policy);
  warmup_depths_ = &warmup_depths;
  return play(best);
}

bool ListScheduler::run_with_order(const Policy& policy, const Score& best, const Order& base) {
  start(policy);
  base_ = &base;
  return play(best);
}

void ListScheduler::start(const Policy& policy) {
  const int num_stages = problem_.num_stages();
  const int num_microbatches = problem_.num_microbatches;
  policy_ = policy;
  warmup_depths_ = nullptr;
  base_ = nullptr;
  worst_idle_ = Duration::zero();
  num_left_ = std::int64_t{3} * num_stages * num_microbatches;
  activations_ = MicrobatchGrid<Duration>(problem_.extent(), kNever);
  gradients_ = MicrobatchGrid<Duration>(problem_.extent(), kNever);
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    activations_.at(0, microbatch) = Duration::zero();
  }
  wires_.clear();

  Duration due{};
  for (int stage = 0; stage < num_stages; ++stage) {
    StageState& state = state_of_stage(stage);
    state.counts = {};
    const std::int64_t part = std::int64_t{policy.max_in_flight} * (num_stages - stage);
    const auto share = static_cast<int>((part + num_stages - 1) / num_stages);
    state.max_in_flight = policy.max_in_flight > 0 ? std::max(1, share) : num_microbatches;
    due += problem_.stage(stage).forward + problem_.stage(stage).forward_hop.total();
  }
  for (int stage = num_stages - 1; stage >= 0; --stage) {
    state_of_stage(stage).first_input_due = due;
    due += problem_.stage(stage).input_backward + problem_.stage(stage).backward_hop.total();
  }
  for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
    state_of_rank(rank) = {};
    order_[static_cast<std::size_t>(rank)].clear();
    wakeups_.set_time(rank, Duration::zero());
  }
}

bool ListScheduler::play(const Score& best) {
  const Duration to_beat = best.by(problem_.objective);
  while (true) {
    const int rank = wakeups_.first();
    const Duration now = wakeups_.time_of(rank);
    if (now >= kNever) break;
    if (base_ != nullptr) skip_weights_of_base(rank);
    const Choice choice = choose(rank, now);
    if (choice.slot == Choice::kNothing) {
      wakeups_.set_time(rank, choice.wake_at);
      continue;
    }
    perform(rank, now, choice);
    const RankState& state = state_of_rank(rank);
    Duration at_least = problem_.rank(rank).work + state.idle;
    if (problem_.objective == SearchObjective::Makespan) at_least += *state.first_start;
    if (at_least >= to_beat) return false;
  }
  return num_left_ == 0;
}

ListScheduler::Choice ListScheduler::choose(int rank, Duration now) const {
  const std::vector<int>& stages = problem_.rank(rank).stages;
  const RankState& state = state_of_rank(rank);
  Ready ready;
  for (int slot = 0; slot < static_cast<int>(stages.size()); ++slot) {
    find_input(rank, slot, now, ready);
    find_forward(rank, slot, now, ready);
  }
  if (ready.input_slot != Choice::kNothing) {
    return {.slot = ready.input_slot, .kind = ActionKind::InputBackward};
  }
  Duration next = std::min(ready.next_input, ready.next_forward);
  if (ready.forward_slot != Choice::kNothing) {
    if (base_ != nullptr || may_run_forward(rank, now, ready)) {
      return {.slot = ready.forward_slot, .kind = ActionKind::Forward};
    }
    next = ready.next_input;
  }
  if (state.num_deferred > 0) {
    const int slot = oldest_deferred_slot(rank);
    const int stage = stages[static_cast<std::size_t>(slot)];
    const Duration wait = next - now;
    const Duration budget =
        policy_.idle_budget == Policy::kAsWorstRank ? worst_idle_ : policy_.idle_budget;
    if (ready.needs_weights || wait >= problem_.stage(stage).weight_backward ||
        state.idle + wait > budget) {
      return {.slot = slot, .kind = ActionKind::WeightBackward};
    }
  }
  return {.wake_at = next};
}

void ListScheduler::find_input(int rank, int slot, Duration now, Ready& ready) const {
  const int index = problem_.rank(rank).stages[static_cast<std::size_t>(slot)];
  const StageCounts& counts = state_of_stage(index).counts;
  if (counts.inputs == problem_.num_microbatches || !is_next_of_base(rank, slot, false)) return;

  const SearchStage& stage = problem_.stage(index);
  const Duration arrival = gradients_.at(index, counts.inputs);
  const std::int64_t held_after =
      state_of_rank(rank).held_bytes - stage.activation_bytes + stage.weight_bytes;
  if (arrival > now) {
    ready.next_input = std::min(ready.next_input, arrival);
  } else if (held_after > problem_.rank(rank).limit_bytes) {
    ready.needs_weights = true;
  } else if (ready.input_slot == Choice::kNothing || policy_.deepest_input_first) {
    ready.input_slot = slot;
  }
}

void ListScheduler::find_forward(int rank, int slot, Duration now, Ready& ready) const {
  const int index = problem_.rank(rank).stages[static_cast<std::size_t>(slot)];
  const StageState& state = state_of_stage(index);
  const StageCounts& counts = state.counts;
  const bool may_start = counts.forwards < problem_.num_microbatches &&
                         counts.forwards - counts.inputs < state.max_in_flight;
  if (!may_start || !is_next_of_base(rank, slot, true)) return;

  const RankState& rank_state = state_of_rank(rank);
  const std::int64_t limit = problem_.rank(rank).limit_bytes;
  const Duration arrival = activations_.at(index, counts.forwards);
  // A given order leaves nothing to choose, so there is nothing to keep room for.
  const std::int64_t reserve = base_ != nullptr ? 0 : state.reserve_bytes;
  const std::int64_t needed =
      rank_state.held_bytes + problem_.stage(index).activation_bytes + reserve;
  if (needed > limit) {
    const bool would_fit = needed - rank_state.deferred_bytes <= limit;
    ready.needs_weights = ready.needs_weights || (arrival <= now && would_fit);
  } else if (arrival > now) {
    ready.next_forward = std::min(ready.next_forward, arrival);
  } else if (ready.forward_slot == Choice::kNothing || policy_.deepest_forward_first) {
    ready.forward_slot = slot;
  }
}

bool ListScheduler::may_run_forward(int rank, Duration now, const Ready& ready) const {
  const std::vector<int>& stages = problem_.rank(rank).stages;
  const RankState& state = state_of_rank(rank);
  int overshoot = policy_.steady_overshoot;
  Duration due = ready.next_input;
  if (state.num_inputs == 0) {
    if (warmup_depths_ != nullptr) {
      return state.num_forwards < (*warmup_depths_)[static_cast<std::size_t>(rank)];
    }
    // The first I needs this rank's own forwards of that microbatch first.
    const StageState& deepest = state_of_stage(stages.back());
    if (deepest.counts.forwards == 0) return true;
    overshoot = policy_.warmup_overshoot;
    if (due >= kNever) due = deepest.first_input_due;
  }
  if (due >= kNever || due <= now) return true;
  const int index = stages[static_cast<std::size_t>(ready.forward_slot)];
  const Duration duration = problem_.stage(index).forward;
  return 1000 * (now + duration - due) <= overshoot * duration;
}

// Without a base order every F and I may come next.
bool ListScheduler::is_next_of_base(int rank, int slot, bool is_forward) const {
  if (base_ == nullptr) return true;
  const std::vector<Step>& steps = (*base_)[static_cast<std::size_t>(rank)];
  const std::size_t position = state_of_rank(rank).base_position;
  if (position == steps.size()) return false;
  const Step step = steps[position];
  return step.slot == slot && (step.kind == ActionKind::Forward) == is_forward;
}

void ListScheduler::skip_weights_of_base(int rank) {
  const std::vector<Step>& steps = (*base_)[static_cast<std::size_t>(rank)];
  std::size_t& position = state_of_rank(rank).base_position;
  while (position < steps.size() && steps[position].kind == ActionKind::WeightBackward) ++position;
}

// Of the deepest stage that has one: its microbatches are the oldest.
int ListScheduler::oldest_deferred_slot(int rank) const {
  const std::vector<int>& stages = problem_.rank(rank).stages;
  for (int slot = static_cast<int>(stages.size()) - 1; slot > 0; --slot) {
    const StageCounts& counts = state_of_stage(stages[static_cast<std::size_t>(slot)]).counts;
    if (counts.weights < counts.inputs) return slot;
  }
  return 0;
}

void ListScheduler::perform(int rank, Duration now, const Choice& choice) {
  const int index = problem_.rank(rank).stages[static_cast<std::size_t>(choice.slot)];
  const SearchStage& stage = problem_.stage(index);
  StageCounts& counts = state_of_stage(index).counts;
  RankState& state = state_of_rank(rank);
  order_[static_cast<std::size_t>(rank)].push_back(
      {static_cast<std::uint8_t>(choice.slot), choice.kind});
  ++num_actions_played_;
  --num_left_;
  if (!state.first_start) {
    state.first_start = now;
  } else {
    state.idle += now - state.free_at;
    worst_idle_ = std::max(worst_idle_, state.idle);
  }

  const int microbatch = counts.next(choice.kind);
  counts.add(choice.kind);
  if (choice.kind == ActionKind::Forward) {
    state.free_at = now + stage.forward;
    state.held_bytes += stage.activation_bytes;
    ++state.num_forwards;
    hand_over_activation(rank, index, microbatch, state.free_at);
    if (state.num_inputs == 0) {
      delay_first_input(problem_.rank(rank).stages.back(), state.free_at);
    }
  } else if (choice.kind == ActionKind::InputBackward) {
    state.free_at = now + stage.input_backward;
    state.held_bytes += stage.weight_bytes - stage.activation_bytes;
    state.deferred_bytes += stage.weight_bytes;
    ++state.num_deferred;
    ++state.num_inputs;
    if (microbatch == 0) delay_first_input(index, now);
    hand_over_gradient(rank, index, microbatch, state.free_at);
  } else {
    state.free_at = now + stage.weight_backward;
    state.held_bytes -= stage.weight_bytes;
    state.deferred_bytes -= stage.weight_bytes;
    --state.num_deferred;
  }
  if (base_ != nullptr && choice.kind != ActionKind::WeightBackward) ++state.base_position;
  wakeups_.set_time(rank, state.free_at);
}

void ListScheduler::hand_over_activation(int rank, int stage, int microbatch, Duration end) {
  if (problem_.is_last_stage(stage)) {
    gradients_.at(stage, microbatch) = end;
    return;
  }
  const int to_rank = problem_.stage(stage + 1).rank;
  const Duration arrival = wires_.send(rank, to_rank, end, problem_.stage(stage).forward_hop);
  activations_.at(stage + 1, microbatch) = arrival;
  if (to_rank != rank) wake(to_rank, arrival);
}

void ListScheduler::hand_over_gradient(int rank, int stage, int microbatch, Duration end) {
  if (stage == 0) return;
  const int to_rank = problem_.stage(stage - 1).rank;
  const Duration arrival = wires_.send(rank, to_rank, end, problem_.stage(stage).backward_hop);
  gradients_.at(stage - 1, microbatch) = arrival;
  if (to_rank != rank) wake(to_rank, arrival);
}

// A rank that is busy now looks around when it is done, and finds the value then.
void ListScheduler::wake(int rank, Duration arrival) {
  const bool is_waiting = wakeups_.time_of(rank) > state_of_rank(rank).free_at;
  if (is_waiting && arrival < wakeups_.time_of(rank)) wakeups_.set_time(rank, arrival);
}

// I of microbatch 0 on `stage` starts at `start` or later; so do those of the stages before it.
void ListScheduler::delay_first_input(int stage, Duration start) {
  while (stage >= 0 && start > state_of_stage(stage).first_input_due) {
    state_of_stage(stage).first_input_due = start;
    start += problem_.stage(stage).input_backward + problem_.stage(stage).backward_hop.total();
    --stage;
  }
}

}  // namespace penstock
