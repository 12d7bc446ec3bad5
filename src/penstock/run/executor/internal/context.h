#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/executor/executor.h"
#include "penstock/run/executor/internal/instruction.h"

namespace penstock {

// What a custom function is given; it watches that each part of the action runs once.
class Executor::Context final : public ActionContext {
 public:
  static constexpr int kMostParts = 64;

  Context(Executor& executor, const Instruction& instruction)
      : executor_(executor), instruction_(instruction) {
    if (num_parts() <= kMostParts) return;
    throw ArgumentError(fmt::format("{} has {} parts; a custom function can run at most {}",
                                    kind_text(instruction_.kind), num_parts(), kMostParts));
  }

  int rank() const override { return executor_.rank_; }
  const Action& action() const override { return *instruction_.action; }
  PipelineStage& stage() const override {
    if (instruction_.stage == nullptr) {
      throw ArgumentError(fmt::format("{} has no stage of its own; look at its parts",
                                      to_string(*instruction_.action)));
    }
    return *instruction_.stage;
  }
  const Microbatch& inputs() const override {
    return executor_.work_->inputs[require_microbatch()];
  }
  c10::IValue target() const override {
    const std::size_t microbatch = require_microbatch();
    const auto& targets = executor_.work_->targets;
    return targets.empty() ? c10::IValue() : targets[microbatch];
  }
  const KeywordArguments& loss_keywords() const override { return *executor_.work_->loss_keywords; }
  void run() override {
    const std::uint64_t all = ~std::uint64_t{0} >> (kMostParts - num_parts());
    const at::AutoGradMode grad_mode(executor_.work_->is_training);
    run_once(all, [this] { executor_.perform_default(instruction_); });
  }
  void run_part(std::size_t part) override {
    if (part >= instruction_.parts.size()) {
      throw ArgumentError(fmt::format(
          "{} has {}, there is no part {}", to_string(*instruction_.action),
          counted(static_cast<long long>(instruction_.parts.size()), "part", "parts"), part));
    }
    const at::AutoGradMode grad_mode(executor_.work_->is_training);  // of this thread
    run_once(std::uint64_t{1} << part,
             [this, part] { executor_.perform_observed(instruction_.parts[part], true); });
  }

  // Values that nobody computed would be missed elsewhere, and much later.
  void require_run() const {
    const int num_run = std::popcount(has_run_.load());
    if (!is_compute(instruction_.kind) || num_run == num_parts()) return;
    throw ArgumentError(fmt::format(
        "the custom function of {} ran {} of {}; it must call run() once, or run_part() once for "
        "each part",
        kind_text(instruction_.kind), num_run, counted(num_parts(), "action", "actions")));
  }

 private:
  std::size_t require_microbatch() const {
    if (instruction_.microbatch == Action::kNone) {
      throw ArgumentError(
          fmt::format("{} has no microbatch of its own", to_string(*instruction_.action)));
    }
    return static_cast<std::size_t>(instruction_.microbatch);
  }

  // An action without parts is its only one.
  int num_parts() const { return std::max<int>(1, static_cast<int>(instruction_.parts.size())); }

  // `parts` has a bit for each part that `work` runs.
  template <typename Work>
  void run_once(std::uint64_t parts, const Work& work) {
    if ((has_begun_.fetch_or(parts) & parts) != 0) {
      throw ArgumentError(fmt::format(
          "the custom function of {} runs {} or a part of it a second time; it must call run() "
          "once, or run_part() once for each part",
          kind_text(instruction_.kind), to_string(*instruction_.action)));
    }
    work();
    has_run_ |= parts;
  }

  Executor& executor_;
  const Instruction& instruction_;
  // A bit for each part; parts may run on two threads.
  std::atomic<std::uint64_t> has_begun_ = 0;
  std::atomic<std::uint64_t> has_run_ = 0;
};

}  // namespace penstock
