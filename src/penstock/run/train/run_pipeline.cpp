#include "penstock/run/train/run_pipeline.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipe/pipe.h"

namespace penstock {
namespace {

// With tensors of its own.
CapturedModel copy_of(const CapturedModel& model) {
  CapturedModel copy = model;
  for (CapturedModel::Tensor& tensor : copy.tensors) {
    const bool is_trained = tensor.tensor.requires_grad();
    tensor.tensor = tensor.tensor.detach().clone().set_requires_grad(is_trained);
  }
  return copy;
}

// The model for each replica, the first with the tensors that there are.
std::vector<CapturedModel> models_of(const CapturedModel& model, int num_replicas) {
  std::vector<CapturedModel> models = {model};
  while (static_cast<int>(models.size()) < num_replicas) models.push_back(copy_of(model));
  return models;
}

bool can_be_sharded(const StageModule& module) {
  return module.shared_parameters().empty() && !module.named_parameters().empty();
}

int count_shardable(const Pipe& pipe) {
  int count = 0;
  for (int stage = 0; stage < pipe.num_stages(); ++stage) {
    if (can_be_sharded(*pipe.stage_module(stage))) ++count;
  }
  if (count > 0) return count;
  const std::vector<std::string>& shared = pipe.info().shared_parameters;
  if (shared.empty()) {
    throw ArgumentError("the model has no parameters to be sharded; train it without sharding");
  }
  throw ArgumentError(fmt::format(
      "no stage can be sharded: all parameters are in stages that share one, such as "
      "{}; use more ranks, give the head of a gpt weights of its own (--untied), or train "
      "without sharding",
      quote(shared.front(), 80)));
}

StageList local_stages(const Pipe& pipe, const PipelinePlan& plan,
                       const std::shared_ptr<ProcessRanks>& ranks) {
  if (ranks == nullptr) return pipe.build_stages();
  StageList stages;
  const Placement placement = placement_of(plan.schedule, pipe.num_stages());
  for (const int rank : ranks->local_ranks()) {
    for (const int stage : placement.stages_of(rank)) stages.push_back(pipe.build_stage(stage));
  }
  return stages;
}

ScheduleOptions schedule_options(const RunPipelineOptions& options, int num_microbatches) {
  ScheduleOptions result;
  result.num_microbatches = num_microbatches;
  result.group = options.processes.ranks;
  result.data_group = options.processes.replicas;
  result.loss = options.loss;
  result.intra_op_threads = 1;
  result.deadline = options.deadline;
  return result;
}

}  // namespace

std::vector<std::string> exchange_in_run(const RunProcesses& processes, const std::string& topic,
                                         const std::string& value) {
  if (processes.world == nullptr) return {value};
  return processes.world->exchange(processes.world->everyone(), topic, value,
                                   {.look = [&processes] { processes.ranks->require_healthy(); }});
}

std::string decide_for_all(const RunProcesses& processes, const std::string& topic,
                           const std::function<std::string()>& decide) {
  const bool is_first = processes.world == nullptr || processes.world->rank() == 0;
  return exchange_in_run(processes, topic, is_first ? decide() : "").front();
}

RunPipeline::RunPipeline(const RunModel& model, PipelinePlan plan,
                         const RunPipelineOptions& options)
    : plan_(std::move(plan)), options_(options) {
  const bool is_training = options.purpose == RunPurpose::Training;
  const Schedule order =
      is_training ? plan_.schedule : forward_order(plan_.schedule, options.num_microbatches);
  const int num_local = options.processes.world == nullptr ? options.num_replicas : 1;
  const std::vector<CapturedModel> models = models_of(model.captured, num_local);
  replicas_ = std::make_unique<PipelineReplicas>(num_local, [&](const Replica& replica) {
    const CapturedModel& own = models[static_cast<std::size_t>(replica.index)];
    const Pipe pipe(split_graph(own, cut_positions(own, plan_.cuts)));
    const StageList stages = local_stages(pipe, plan_, options.processes.ranks);
    ScheduleOptions chosen = schedule_options(options_, extent_of(order).num_microbatches);
    ReplicaPosition place{replica.index, replica.count};
    if (replica.group != nullptr) {
      chosen.data_group = replica.group;
    } else if (chosen.data_group != nullptr) {
      place = {chosen.data_group->local_ranks().front(), chosen.data_group->num_ranks()};
    }
    if (options.is_sharded) {
      num_sharded_stages_ = count_shardable(pipe);
      for (const auto& stage : stages) {
        if (can_be_sharded(stage->module())) shard_stage(*stage, place);
      }
    }
    if (replica.index == 0) {
      chosen.observers = {meter_, timeline_, profile_};
    } else {
      // libtorch counts memory per thread, and complains if a thread frees what was not counted.
      chosen.observers = {std::make_shared<ProfileRecorder>()};
    }
    return std::make_unique<PipelineSchedule>(stages, order, std::move(chosen));
  });
  train(is_training);
}

ReplicaPosition RunPipeline::position(int replica) const {
  const auto& processes = options_.processes.replicas;
  if (processes != nullptr) return {processes->local_ranks().front(), processes->num_ranks()};
  return {replica, num_local_replicas()};
}

void RunPipeline::run(const std::function<void(int)>& work) {
  PENSTOCK_ASSERT(!has_handed_over_, "stages that belong to other pipelines are not trained");
  replicas_->run(work);
}

bool RunPipeline::has_last_stage() const {
  return position().index == 0 && stages().back()->is_last();
}

std::vector<ParameterBytes> RunPipeline::parameter_bytes() const {
  return replicas_->replica(0).parameter_bytes();
}

void RunPipeline::train(bool on) const {
  for (int replica = 0; replica < num_local_replicas(); ++replica) {
    for (const auto& stage : stages(replica)) stage->module().train(on);
  }
}

std::unique_ptr<PipelineReplicas> RunPipeline::make_forward_pipelines(int num_microbatches) {
  has_handed_over_ = position().count > 1;
  const bool is_sharded = num_sharded_stages_ > 0;
  return std::make_unique<PipelineReplicas>(
      is_sharded ? num_local_replicas() : 1, [&](const Replica& replica) {
        ScheduleOptions options = schedule_options(options_, num_microbatches);
        if (!is_sharded) options.data_group = nullptr;
        if (replica.group != nullptr) options.data_group = replica.group;
        return std::make_unique<PipelineSchedule>(stages(replica.index),
                                                  forward_order(plan_.schedule, num_microbatches),
                                                  std::move(options));
      });
}

}  // namespace penstock
