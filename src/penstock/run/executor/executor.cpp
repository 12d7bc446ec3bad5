#include "penstock/run/executor/executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/run/executor/internal/context.h"
#include "penstock/run/executor/internal/instruction.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/random/random_scope.h"

namespace penstock {
namespace {

// How many receives are announced before the list comes to them. Over Gloo, a send that finds its
// receive announced takes one trip, otherwise three; each costs memory for one message. Steps of
// many small messages take a quarter longer with none, and no less with more than these.
constexpr std::size_t kReceivesAhead = 2;

void require_one_element(const at::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return;
  throw StageError(fmt::format(
      "the loss function returned {}; expected a tensor with one element, so reduce it with a "
      "mean or a sum",
      describe(loss)));
}

// Nothing would be trained, and nobody would know.
void require_gradient(const at::Tensor& loss, int microbatch, int stage) {
  if (loss.requires_grad()) return;
  throw StageError(fmt::format(
      "the loss of microbatch {} on stage {} does not depend on anything that requires a gradient, "
      "so it trains nothing; look for detach() or a NoGradGuard in the loss function or in the "
      "stages, and for parameters that are all frozen. If that is meant, set "
      "ScheduleOptions::allows_detached_loss",
      microbatch, stage));
}

}  // namespace

Executor::Executor(int rank, const Schedule& program, std::span<PipelineStage* const> stages,
                   Transport& transport, ProgressBoard& progress, ReplicaLink* replicas,
                   const ExecutorOptions& options)
    : rank_(rank),
      program_(program),
      transport_(transport),
      progress_(progress),
      replicas_(replicas),
      options_(options),
      stages_(stages.begin(), stages.end()),
      instructions_(compile_instructions(program, rank, stages_)) {
  const Extent grid{static_cast<int>(stages_.size()), extent_of(program).num_microbatches};
  activations_in_ = MicrobatchGrid<Message>(grid);
  activations_out_ = MicrobatchGrid<Message>(grid);
  gradients_in_ = MicrobatchGrid<Message>(grid);
  gradients_out_ = MicrobatchGrid<Message>(grid);
  for (const PipelineStage* stage : stages_) keywords_.push_back(stage->module().keywords());
  chosen_keywords_.resize(stages_.size());
  for (const Instruction& instruction : instructions_) {
    if (is_receive(instruction.kind)) receives_.push_back(&instruction);
  }
}

Executor::~Executor() = default;

void Executor::run(StepWork& work) {
  work_ = &work;
  step_ = 0;
  peak_activations_ = 0;
  progress_.set_finished(rank_, 0);
  progress_.set_waiting(rank_, false);
  const at::AutoGradMode grad_mode(work.is_training);
  for (const auto& observer : options_.observers) observer->rank_begins(rank_);
  try {
    transport_.begin_step(work.number);
    num_expected_ = 0;
    num_receives_reached_ = 0;
    walk();
  } catch (...) {
    // Whatever is on its way belongs to a step that is over.
    for (int slot = 0; slot < static_cast<int>(stages_.size()); ++slot) {
      for (int microbatch = 0; microbatch < static_cast<int>(work.inputs.size()); ++microbatch) {
        activations_in_.at(slot, microbatch).clear();
        activations_out_.at(slot, microbatch).clear();
        gradients_in_.at(slot, microbatch).clear();
        gradients_out_.at(slot, microbatch).clear();
      }
    }
    for (KeywordArguments& keywords : chosen_keywords_) keywords.clear();
    for (const auto& observer : options_.observers) observer->rank_ends(rank_);
    throw;
  }
  for (const auto& observer : options_.observers) observer->rank_ends(rank_);
}

void Executor::walk() {
  try {
    const int num_instructions = static_cast<int>(instructions_.size());
    expect_receives();
    for (step_ = 0; step_ < num_instructions; ++step_) {
      const Instruction& instruction = instructions_[static_cast<std::size_t>(step_)];
      if (replicas_ != nullptr) replicas_->go_to(step_);
      fetch(instruction);
      perform_observed(instruction, false);
      progress_.set_finished(rank_, step_ + 1);
    }
    step_ = std::max(0, num_instructions - 1);  // whatever fails from here on
    finish_gradients();
  } catch (const StoppedError&) {
    throw;
  } catch (const TransportError& error) {
    fail(error.what(), StepError::Origin::Transport);
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("something was thrown that is not a std::exception");
  }
}

// What REDUCE_GRAD has begun is complete when the list is.
void Executor::finish_gradients() {
  if (replicas_ == nullptr) return;
  replicas_->finish();
  if (!work_->is_training) return;
  for (const PipelineStage* stage : stages_) stage->require_final_gradients();
}

void Executor::fail(const std::string& cause, StepError::Origin origin) {
  transport_.stop();
  throw StepError({rank_, step_}, *instructions_[static_cast<std::size_t>(step_)].action, cause,
                  origin);
}

// Waits for what a computation needs from other ranks.
void Executor::fetch(const Instruction& instruction) {
  if (!is_compute(instruction.kind)) return;
  for (const Instruction& part : instruction.parts) fetch(part);
  if (instruction.stage != nullptr) instruction.stage->await_parameters();
  if (instruction.peer == Instruction::kNobody) return;
  auto& grid = instruction.kind == ActionKind::Forward ? activations_in_ : gradients_in_;
  try {
    progress_.set_waiting(rank_, true);
    transport_.receive(instruction.peer, instruction.key,
                       grid.at(instruction.slot, instruction.microbatch));
    progress_.set_waiting(rank_, false);
  } catch (const TransportError& error) {
    const int finished = progress_.finished(instruction.peer);
    if (finished == ProgressBoard::kUnknown) throw;
    const auto& actions = program_.actions_of(instruction.peer);
    throw TransportError(
        finished == 0 ? fmt::format("{}, which has not finished anything", error.what())
                      : fmt::format("{}, which last finished {} (step {})", error.what(),
                                    to_string(actions[static_cast<std::size_t>(finished - 1)]),
                                    finished - 1));
  }
}

void Executor::perform(const Instruction& instruction) {
  const CustomFunction& custom = options_.custom_functions[instruction.kind];
  if (!custom) {
    perform_default(instruction);
    return;
  }
  Context context(*this, instruction);
  custom(context);
  context.require_run();
}

void Executor::perform_default(const Instruction& instruction) {
  switch (instruction.kind) {
    case ActionKind::Forward:
      forward(instruction);
      break;
    case ActionKind::FullBackward:
    case ActionKind::InputBackward:
      backward(instruction);
      break;
    case ActionKind::WeightBackward:
      instruction.stage->backward_weight(instruction.microbatch);
      break;
    case ActionKind::Overlap:
      for (const Instruction& part : instruction.parts) perform_observed(part, true);
      break;
    case ActionKind::SendForward:
    case ActionKind::SendBackward: {
      auto& grid = instruction.kind == ActionKind::SendForward ? activations_out_ : gradients_out_;
      Message& message = grid.at(instruction.slot, instruction.microbatch);
      progress_.set_waiting(rank_, true);
      transport_.send(instruction.peer, instruction.key, message);
      progress_.set_waiting(rank_, false);
      break;
    }
    case ActionKind::ReceiveForward:
    case ActionKind::ReceiveBackward:
      ++num_receives_reached_;
      expect_receives();
      break;
    case ActionKind::Unshard:
      instruction.stage->unshard();
      break;
    case ActionKind::Reshard:
      instruction.stage->reshard();
      break;
    case ActionKind::ReduceGrad:  // gradients are scaled where they start
      instruction.stage->reduce_gradients();
      break;
    case ActionKind::Idle:
      break;
  }
}

void Executor::expect_receives() {
  const std::size_t end = std::min(num_receives_reached_ + kReceivesAhead, receives_.size());
  for (; num_expected_ < end; ++num_expected_) {
    transport_.expect(receives_[num_expected_]->peer, receives_[num_expected_]->key);
  }
}

void Executor::forward(const Instruction& instruction) {
  PipelineStage& stage = *instruction.stage;
  const int microbatch = instruction.microbatch;
  Message& inputs = activations_in_.at(instruction.slot, microbatch);
  const Microbatch& given = work_->inputs[static_cast<std::size_t>(microbatch)];
  RandomScope random({.step_seed = work_->random_seed,
                      .microbatch = work_->first_microbatch + microbatch,
                      .stage = stage.index()});
  const c10::IValue output =
      stage.forward(microbatch, stage.is_first() ? given.args : inputs, keywords_of(instruction));
  inputs.clear();
  for (auto& [name, value] : chosen_keywords_[static_cast<std::size_t>(instruction.slot)]) {
    value = c10::IValue();  // the names are kept
  }

  if (stage.is_last()) {
    random.seed_site(RandomScope::kLoss);
    finish_last(instruction, output);
  } else {
    Message& outputs = activations_out_.at(instruction.slot, microbatch);
    stage.keep_outputs(microbatch, output, outputs);
    if (instruction.next_slot != Instruction::kNobody) {
      outputs.swap(activations_in_.at(instruction.next_slot, microbatch));
    }
  }
  int num_live = 0;
  for (const PipelineStage* local : stages_) num_live += local->num_live_microbatches();
  peak_activations_ = std::max(peak_activations_, num_live);
}

void Executor::finish_last(const Instruction& instruction, const c10::IValue& output) {
  const auto microbatch = static_cast<std::size_t>(instruction.microbatch);
  if (work_->loss != nullptr) {
    const c10::IValue target = work_->targets.empty() ? c10::IValue() : work_->targets[microbatch];
    const at::Tensor loss = (*work_->loss)(output, target, *work_->loss_keywords);
    require_one_element(loss);
    if (work_->is_training) {
      if (!work_->allows_detached_loss) {
        require_gradient(loss, instruction.microbatch, instruction.stage->index());
      }
      instruction.stage->keep_loss(instruction.microbatch, loss);
      Message& gradients = gradients_in_.at(instruction.slot, instruction.microbatch);
      gradients = loss_seed(loss, work_->loss_weights[microbatch]);
    }
    work_->losses[microbatch] = loss.detach();
  }
  if (work_->keeps_outputs) {
    work_->outputs[microbatch] =
        map_tensors(output, [](const at::Tensor& tensor) { return tensor.detach(); });
  }
}

// The gradient that the backward of `loss` starts from. Made anew only when it changes.
const Message& Executor::loss_seed(const at::Tensor& loss, double weight) {
  const bool fits = !seed_.empty() && seed_weight_ == weight &&
                    seed_.front().toTensor().sizes() == loss.sizes() &&
                    seed_.front().toTensor().scalar_type() == loss.scalar_type() &&
                    seed_.front().toTensor().device() == loss.device();
  if (!fits) {
    seed_ = {at::full(loss.sizes(), weight, loss.options().requires_grad(false))};
    seed_weight_ = weight;
  }
  return seed_;
}

void Executor::backward(const Instruction& instruction) {
  PipelineStage& stage = *instruction.stage;
  const int microbatch = instruction.microbatch;
  Message& gradients = gradients_in_.at(instruction.slot, microbatch);
  Message& input_gradients = gradients_out_.at(instruction.slot, microbatch);
  if (instruction.kind == ActionKind::FullBackward) {
    stage.backward(microbatch, gradients, input_gradients);
  } else {
    stage.backward_input(microbatch, gradients, input_gradients);
  }
  gradients.clear();
  if (instruction.next_slot != Instruction::kNobody) {
    input_gradients.swap(gradients_in_.at(instruction.next_slot, microbatch));
  }
}

// Those of the microbatch's keyword inputs that the stage takes.
const KeywordArguments& Executor::keywords_of(const Instruction& instruction) {
  const auto slot = static_cast<std::size_t>(instruction.slot);
  const KeywordArguments& given =
      work_->inputs[static_cast<std::size_t>(instruction.microbatch)].kwargs;
  KeywordArguments& chosen = chosen_keywords_[slot];
  for (const std::string& name : keywords_[slot]) {
    if (const auto found = given.find(name); found != given.end()) {
      chosen.insert_or_assign(name, found->second);
    } else {
      chosen.erase(name);
    }
  }
  return chosen;
}

void Executor::perform_observed(const Instruction& instruction, bool is_part) {
  if (options_.observers.empty()) {
    perform(instruction);
    return;
  }
  const StepClock::time_point begin = StepClock::now();
  ActionEvent event{rank_, step_, *instruction.action, is_part, begin, begin};
  for (const auto& observer : options_.observers) observer->action_begins(event);
  perform(instruction);
  event.time = StepClock::now();
  event.message_bytes = message_bytes(instruction);
  for (const auto& observer : options_.observers) observer->action_ends(event);
}

std::int64_t Executor::message_bytes(const Instruction& instruction) {
  const bool is_forward = instruction.kind == ActionKind::Forward;
  if (!is_forward && !makes_input_gradient(instruction.kind)) return 0;
  const Message& message = instruction.next_slot != Instruction::kNobody
                               ? (is_forward ? activations_in_ : gradients_in_)
                                     .at(instruction.next_slot, instruction.microbatch)
                               : (is_forward ? activations_out_ : gradients_out_)
                                     .at(instruction.slot, instruction.microbatch);
  std::int64_t bytes = 0;
  for (const c10::IValue& value : message) {
    for_each_tensor(value, [&bytes](const at::Tensor& tensor) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    });
  }
  return bytes;
}

}  // namespace penstock
