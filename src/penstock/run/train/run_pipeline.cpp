#include "penstock/run/train/run_pipeline.h"

#include <utility>

#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipe/pipe.h"

namespace penstock {
namespace {

// How long a rank may be without progress: large models take their time.
constexpr std::chrono::minutes kPatience{5};

StageList local_stages(const RunModel& model, const PipelinePlan& plan,
                       const std::shared_ptr<ProcessRanks>& ranks) {
  const Pipe pipe(split_graph(model.captured, cut_positions(model.captured, plan.cuts)));
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
  result.loss = options.loss;
  result.intra_op_threads = 1;
  result.deadline = kPatience;
  return result;
}

}  // namespace

std::string decide_for_all(World* world, const std::string& topic,
                           const std::function<std::string()>& decide) {
  if (world == nullptr) return decide();
  return world->exchange(world->everyone(), topic, world->rank() == 0 ? decide() : "").front();
}

RunPipeline::RunPipeline(const RunModel& model, PipelinePlan plan,
                         const RunPipelineOptions& options)
    : plan_(std::move(plan)), options_(options) {
  StageList stages = local_stages(model, plan_, options.processes.ranks);
  const bool is_training = options.purpose == RunPurpose::Training;
  Schedule order =
      is_training ? plan_.schedule : forward_order(plan_.schedule, options.num_microbatches);
  ScheduleOptions chosen = schedule_options(options_, extent_of(order).num_microbatches);
  chosen.observers = {meter_, timeline_, profile_};
  schedule_ =
      std::make_unique<PipelineSchedule>(std::move(stages), std::move(order), std::move(chosen));
  train(is_training);
}

bool RunPipeline::has_last_stage() const {
  return stages().back()->is_last();
}

void RunPipeline::train(bool on) const {
  for (const auto& stage : stages()) stage->module().train(on);
}

std::unique_ptr<PipelineSchedule> RunPipeline::make_forward_schedule(int num_microbatches) const {
  return std::make_unique<PipelineSchedule>(stages(),
                                            forward_order(plan_.schedule, num_microbatches),
                                            schedule_options(options_, num_microbatches));
}

}  // namespace penstock
