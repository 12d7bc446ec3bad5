#include "penstock/run/pipeline/pipeline_replicas.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/pipeline/internal/batch.h"
#include "penstock/run/pipeline/internal/replica_hubs.h"

namespace penstock {
namespace {

constexpr int kNobody = -1;

void require_alike(const std::vector<std::unique_ptr<PipelineSchedule>>& replicas,
                   const std::vector<std::shared_ptr<RankGroup>>& groups) {
  for (std::size_t index = 0; index < replicas.size(); ++index) {
    if (replicas[index] == nullptr) {
      throw ArgumentError(fmt::format("there is no pipeline for replica {}", index));
    }
    const PipelineSchedule& replica = *replicas[index];
    if (groups[index] != nullptr && replica.options().data_group != groups[index]) {
      throw ArgumentError(
          fmt::format("the pipeline of replica {} does not have the group that it was given; set "
                      "ScheduleOptions::data_group",
                      index));
    }
    if (replica.program() != replicas.front()->program()) {
      throw ArgumentError(
          fmt::format("replica {} has another schedule than replica 0; give all the same", index));
    }
  }
}

bool is_stop(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StoppedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

PipelineReplicas::PipelineReplicas(int num_replicas, const Make& make) {
  if (num_replicas < 1) {
    throw ArgumentError(fmt::format("there must be at least one replica, not {}", num_replicas));
  }
  if (num_replicas > 1) hubs_ = std::make_shared<ReplicaHubs>(num_replicas);
  std::vector<std::shared_ptr<RankGroup>> groups;
  for (int index = 0; index < num_replicas; ++index) {
    groups.push_back(hubs_ == nullptr ? nullptr : hubs_->group_of(index));
    replicas_.push_back(make({.index = index, .count = num_replicas, .group = groups.back()}));
  }
  require_alike(replicas_, groups);
  const int num_threads = num_replicas * replicas_.front()->num_ranks();
  threads_ = std::make_unique<RankThreads>(
      num_replicas,
      RankThreadOptions{.wait = wait_policy_for(num_threads, replicas_.front()->options().deadline),
                        .intra_op_threads = std::max(1, at::get_num_threads() / num_threads)});
}

PipelineReplicas::~PipelineReplicas() = default;

StepResult PipelineReplicas::step(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return run_batch(std::move(inputs), options, true);
}

StepResult PipelineReplicas::eval(std::vector<c10::IValue> inputs, const StepOptions& options) {
  return run_batch(std::move(inputs), options, false);
}

void PipelineReplicas::run(const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(replicas_.size());
  std::atomic<int> first_failure = kNobody;
  std::atomic<bool> has_failed = false;
  const bool records_gradients = at::GradMode::is_enabled();
  threads_->run([&](int replica) {
    const at::AutoGradMode grad_mode(records_gradients);
    try {
      work(replica);
    } catch (...) {
      errors[static_cast<std::size_t>(replica)] = std::current_exception();
      if (!is_stop(std::current_exception())) {
        int nobody = kNobody;
        first_failure.compare_exchange_strong(nobody, replica);
      }
      has_failed.store(true);
      if (hubs_ != nullptr) hubs_->stop();
    }
  });
  if (!has_failed.load()) return;
  if (hubs_ != nullptr) hubs_->reset();
  if (first_failure.load() != kNobody) {
    std::rethrow_exception(errors[static_cast<std::size_t>(first_failure.load())]);
  }
  throw StoppedError();
}

StepResult PipelineReplicas::run_batch(std::vector<c10::IValue> inputs,
                                       const StepOptions& step_options, bool is_training) {
  const ScheduleOptions& options = replicas_.front()->options();
  const int num_microbatches = options.num_microbatches;
  const int num_all = num_microbatches * num_replicas();
  const std::vector<Microbatch> microbatches =
      split_microbatches({std::move(inputs), step_options.kwargs}, num_all, options.split);
  std::vector<c10::IValue> targets;
  if (!step_options.target.isNone()) {
    targets = split_value(step_options.target, num_all, options.target_chunk_spec, "target");
  }
  StepOptions own_options = step_options;
  own_options.target = {};
  own_options.kwargs = {};

  std::vector<MicrobatchResults> results(replicas_.size());
  run([&](int replica) {
    const auto part_of = [&](const auto& list) {
      const auto begin = list.begin() + replica * num_microbatches;
      return std::vector(begin, begin + num_microbatches);
    };
    PresplitBatch batch{.inputs = part_of(microbatches)};
    if (!targets.empty()) batch.targets = part_of(targets);
    results[static_cast<std::size_t>(replica)] =
        this->replica(replica).run_unmerged(batch, own_options, is_training);
  });

  MicrobatchResults all;
  for (MicrobatchResults& result : results) {
    std::move(result.outputs.begin(), result.outputs.end(), std::back_inserter(all.outputs));
    std::move(result.losses.begin(), result.losses.end(), std::back_inserter(all.losses));
  }
  return merge_results(std::move(all), options);
}

}  // namespace penstock
