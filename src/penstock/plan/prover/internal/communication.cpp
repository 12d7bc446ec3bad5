#include <string_view>

#include "penstock/plan/prover/internal/rules.h"

namespace penstock {
namespace {

struct TransferTexts {
  std::string_view send;
  std::string_view receive;
};
constexpr TransferTexts kActivation = {"SEND_F", "RECV_F"};
constexpr TransferTexts kGradient = {"SEND_B", "RECV_B"};

// One value on its way from a stage to its neighbour: what makes it, moves it and needs it.
// `producer` and `send` are steps of the one rank, `receive` and `consumer` of the other.
struct Transfer {
  int from_stage;
  int to_stage;
  int microbatch;
  Step producer;
  Step send;
  Step receive;
  Step consumer;
};

void check_local_transfer(const ActionIndex& index, const Transfer& transfer,
                          Violations& violations) {
  constexpr std::string_view kReason = "both stages are on this rank: there is nothing to transfer";
  if (transfer.send != kAbsent) {
    violations.add(Rule::Communication, index.position(transfer.from_stage, transfer.send), "{}",
                   kReason);
  }
  if (transfer.receive != kAbsent) {
    violations.add(Rule::Communication, index.position(transfer.to_stage, transfer.receive), "{}",
                   kReason);
  }
}

void check_transfer(const ActionIndex& index, const Transfer& transfer, TransferTexts texts,
                    Violations& violations) {
  const auto [from_stage, to_stage, microbatch, producer, send, receive, consumer] = transfer;
  const auto at_sender = [&](Step step) { return index.position(transfer.from_stage, step); };
  const auto at_receiver = [&](Step step) { return index.position(transfer.to_stage, step); };
  if (send == kAbsent && receive != kAbsent) {
    violations.add(Rule::Communication, at_receiver(receive),
                   "rank {} never sends it ({}{}{} is missing)",
                   index.placement().rank_of(from_stage), from_stage, texts.send, microbatch);
  } else if (send == kAbsent && producer != kAbsent) {
    violations.add(Rule::Communication, at_sender(producer),
                   "its result is never sent ({}{}{} is missing)", from_stage, texts.send,
                   microbatch);
  }
  if (receive == kAbsent && send != kAbsent) {
    violations.add(Rule::Communication, at_sender(send),
                   "rank {} never receives it ({}{}{} is missing)",
                   index.placement().rank_of(to_stage), to_stage, texts.receive, microbatch);
  } else if (receive == kAbsent && consumer != kAbsent) {
    violations.add(Rule::Communication, at_receiver(consumer),
                   "its input is never received ({}{}{} is missing)", to_stage, texts.receive,
                   microbatch);
  }
  if (send != kAbsent && producer == kAbsent) {
    violations.add(Rule::Communication, at_sender(send), "nothing computes what it sends");
  }
  if (receive != kAbsent && consumer == kAbsent) {
    violations.add(Rule::Communication, at_receiver(receive), "nothing uses what it receives");
  }
  if (send != kAbsent && send <= producer) {
    violations.add(Rule::Communication, at_sender(send),
                   "sends before its value is computed, at step {}", producer);
  }
  if (consumer != kAbsent && consumer <= receive) {
    violations.add(Rule::Communication, at_receiver(consumer),
                   "runs before its input is received, at step {}", receive);
  }
}

// The pipeline's ends have no neighbour to send to or receive from.
void check_end(const ActionIndex& index, int stage, Step send, Step receive,
               Violations& violations) {
  for (const Step step : {send, receive}) {
    if (step == kAbsent) continue;
    violations.add(Rule::Communication, index.position(stage, step),
                   "there is no stage at the other end");
  }
}

// The send that a receive waits for, if `action` is a receive and has one.
Position send_for(const ActionIndex& index, const Action& action) {
  if (action.kind == ActionKind::ReceiveForward && action.stage > 0) {
    const int sender = action.stage - 1;
    return index.position(sender, index.step(ActionKind::SendForward, sender, action.microbatch));
  }
  if (action.kind == ActionKind::ReceiveBackward && action.stage + 1 < index.num_stages()) {
    const int sender = action.stage + 1;
    return index.position(sender, index.step(ActionKind::SendBackward, sender, action.microbatch));
  }
  return {};
}

// A channel is an ordered pair of ranks: its k-th receive takes its k-th message.
void check_channels(const ActionIndex& index, Violations& violations) {
  const Schedule& schedule = index.schedule();
  std::vector<Step> latest(schedule.ranks.size());  // by sender: its latest send received so far
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    latest.assign(schedule.ranks.size(), kAbsent);
    const std::vector<Action>& actions = schedule.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Action& action = actions[static_cast<std::size_t>(step)];
      if (!is_receive(action.kind)) continue;
      const Position send = send_for(index, action);
      if (!send.exists() || send.step == kAbsent) continue;
      Step& last = latest[static_cast<std::size_t>(send.rank)];
      if (send.step < last) {
        violations.add(Rule::Communication, {rank, step},
                       "out of order: rank {} sends this at step {}, before {} at step {}, which "
                       "this rank receives first",
                       send.rank, send.step, to_string(action_at(schedule, {send.rank, last})),
                       last);
      } else {
        last = send.step;
      }
    }
  }
}

}  // namespace

void check_communication(const ActionIndex& index, Violations& violations) {
  const int last_stage = index.num_stages() - 1;
  using enum ActionKind;
  for (int microbatch = 0; microbatch < index.num_microbatches(); ++microbatch) {
    check_end(index, 0, index.step(SendBackward, 0, microbatch),
              index.step(ReceiveForward, 0, microbatch), violations);
    check_end(index, last_stage, index.step(SendForward, last_stage, microbatch),
              index.step(ReceiveBackward, last_stage, microbatch), violations);
  }
  for (int stage = 0; stage < last_stage; ++stage) {
    const int below = stage + 1;
    const bool is_local = index.share_rank(stage, below);
    const bool is_remote = index.crosses_ranks(stage, below);
    for (int microbatch = 0; microbatch < index.num_microbatches(); ++microbatch) {
      const Transfer activation = {.from_stage = stage,
                                   .to_stage = below,
                                   .microbatch = microbatch,
                                   .producer = index.step(Forward, stage, microbatch),
                                   .send = index.step(SendForward, stage, microbatch),
                                   .receive = index.step(ReceiveForward, below, microbatch),
                                   .consumer = index.step(Forward, below, microbatch)};
      const Transfer gradient = {.from_stage = below,
                                 .to_stage = stage,
                                 .microbatch = microbatch,
                                 .producer = index.gradient_step(below, microbatch),
                                 .send = index.step(SendBackward, below, microbatch),
                                 .receive = index.step(ReceiveBackward, stage, microbatch),
                                 .consumer = index.gradient_step(stage, microbatch)};
      if (is_remote) {
        check_transfer(index, activation, kActivation, violations);
        check_transfer(index, gradient, kGradient, violations);
      } else if (is_local) {
        check_local_transfer(index, activation, violations);
        check_local_transfer(index, gradient, violations);
      }
    }
  }
  check_channels(index, violations);
}

}  // namespace penstock
