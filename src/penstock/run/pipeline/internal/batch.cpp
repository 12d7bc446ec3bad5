#include "penstock/run/pipeline/internal/batch.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/microbatch/merge.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

// What messages call the target.
constexpr const char* kTarget = "target";

// Along the dimension that the target is split along.
double rows_of(const c10::IValue& target, const std::optional<ChunkSpec>& spec) {
  const std::optional<std::int64_t> rows = split_rows(target, spec, kTarget);
  if (!rows) {
    throw ArgumentError(fmt::format(
        "LossWeights::ByRows needs a target with a tensor that is split, whose rows it counts, but "
        "all of {} is the same in every microbatch",
        describe(target)));
  }
  return static_cast<double>(*rows);
}

std::vector<double> weights_of(const std::vector<c10::IValue>& targets,
                               const ScheduleOptions& options) {
  std::vector<double> weights(static_cast<std::size_t>(options.num_microbatches), 1.0);
  if (options.loss_weights == LossWeights::ByRows) {
    if (targets.empty()) {
      throw ArgumentError("LossWeights::ByRows needs a target, whose rows it counts");
    }
    std::transform(targets.begin(), targets.end(), weights.begin(), [&](const c10::IValue& target) {
      return rows_of(target, options.target_chunk_spec);
    });
  }
  return weights;
}

}  // namespace

PresplitBatch split_batch(std::vector<c10::IValue> inputs, const StepOptions& step_options,
                          const ScheduleOptions& options, LocalEnds ends) {
  SplitOptions split = options.split;
  if (!ends.has_first_stage) {
    inputs.clear();
    split.args.reset();
  }
  PresplitBatch batch;
  batch.inputs =
      split_microbatches({std::move(inputs), step_options.kwargs}, options.num_microbatches, split);
  if (ends.has_last_stage && !step_options.target.isNone()) {
    batch.targets = split_value(step_options.target, options.num_microbatches,
                                options.target_chunk_spec, kTarget);
  }
  return batch;
}

PresplitBatch keep_local(PresplitBatch batch, const ScheduleOptions& options, LocalEnds ends) {
  if (!ends.has_first_stage) {
    if (batch.inputs.empty()) {
      batch.inputs.resize(static_cast<std::size_t>(options.num_microbatches));
    }
    for (Microbatch& microbatch : batch.inputs) microbatch.args.clear();
  }
  if (!ends.has_last_stage) batch.targets.clear();
  return batch;
}

void require_batch(const PresplitBatch& batch, int num_microbatches) {
  require_microbatches(batch.inputs, num_microbatches);
  if (!batch.targets.empty() &&
      batch.targets.size() != static_cast<std::size_t>(num_microbatches)) {
    throw ArgumentError(
        fmt::format("there are {} for {}",
                    counted(static_cast<long long>(batch.targets.size()), "target", "targets"),
                    counted(num_microbatches, "microbatch", "microbatches")));
  }
}

void require_no_useless_target(const PresplitBatch& batch, const LossFunction& loss) {
  if (!batch.targets.empty() && !loss.needs_target()) {
    throw ArgumentError(
        "a target was given, but the loss takes the output alone; leave it out, or give it to the "
        "model as an input");
  }
}

void require_keywords(const PresplitBatch& batch, const std::set<std::string>& keywords) {
  for (const auto& [name, value] : batch.inputs.front().kwargs) {
    if (keywords.contains(name)) continue;
    const std::vector<std::string_view> known(keywords.begin(), keywords.end());
    const std::string_view nearest = nearest_name(name, known);
    throw ArgumentError(
        fmt::format("no stage takes a keyword input {}{}", quote(name),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
  }
}

std::vector<double> relative_weights(const PresplitBatch& batch, const ScheduleOptions& options,
                                     LocalEnds ends) {
  if (!ends.has_last_stage || !options.loss) return {};
  if (batch.targets.empty() && options.loss.needs_target()) return {};
  return weights_of(batch.targets, options);
}

StepWork make_work(const PresplitBatch& batch, std::span<const double> loss_weights,
                   const StepOptions& step_options, const ScheduleOptions& options, LocalEnds ends,
                   const WorkOptions& work_options) {
  const bool has_loss = !loss_weights.empty();
  StepWork work{.number = work_options.number,
                .is_training = work_options.is_training,
                .inputs = batch.inputs,
                .targets = batch.targets,
                .loss = has_loss ? &options.loss : nullptr,
                .loss_keywords = &step_options.loss_kwargs,
                .loss_weights = loss_weights,
                .allows_detached_loss = options.allows_detached_loss,
                .first_microbatch = work_options.first_microbatch,
                .keeps_outputs = step_options.return_outputs && ends.has_last_stage,
                .random_seed = work_options.random_seed,
                .outputs = {},
                .losses = {}};
  if (work.keeps_outputs) work.outputs.resize(batch.inputs.size());
  if (has_loss) work.losses.resize(batch.inputs.size());
  return work;
}

MicrobatchResults results_of(StepWork& work) {
  return {.outputs = std::move(work.outputs), .losses = std::move(work.losses)};
}

StepResult merge_results(MicrobatchResults results, const ScheduleOptions& options) {
  StepResult result{.output = {}, .losses = std::move(results.losses)};
  if (results.outputs.empty()) return result;
  try {
    result.output = merge_microbatches(results.outputs, options.output_merge_spec);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format(
        "the step is complete, but its outputs cannot be merged: {}; say how in "
        "ScheduleOptions::output_merge_spec, or set StepOptions::return_outputs to false",
        error.what()));
  }
  return result;
}

}  // namespace penstock
