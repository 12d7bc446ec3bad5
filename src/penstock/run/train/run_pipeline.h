#pragma once

#include <memory>
#include <string>

#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/measure/timeline_recorder.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/train/pipeline_plan.h"
#include "penstock/run/train/step_meter.h"
#include "penstock/run/world/world.h"

namespace penstock {

// The processes that are the ranks of a run.
struct RunProcesses {
  World* world = nullptr;
  std::shared_ptr<ProcessRanks> ranks;
};

// What the first process of `world` decides, told to all of them; what this one decides, if there
// is no world.
std::string decide_for_all(World* world, const std::string& topic,
                           const std::function<std::string()>& decide);

enum class RunPurpose { Training, Evaluation };

struct RunPipelineOptions {
  LossFunction loss = {};
  RunPurpose purpose = RunPurpose::Training;
  int num_microbatches = 1;  // of an evaluation
  RunProcesses processes = {};
};

// The stages of a model that are in this process, and the pipeline that runs them: all of them with
// ranks as threads, or those of this process's rank. Every rank computes with one thread, so that
// results do not depend on how many cores there are.
class RunPipeline {
 public:
  RunPipeline(const RunModel& model, PipelinePlan plan, const RunPipelineOptions& options);

  PipelineSchedule& schedule() { return *schedule_; }
  const PipelineSchedule& schedule() const { return *schedule_; }
  const StageList& stages() const { return schedule_->stages(); }
  const PipelinePlan& plan() const { return plan_; }
  int num_ranks() const { return plan_.schedule.num_ranks(); }
  World* world() const { return options_.processes.world; }
  std::shared_ptr<const ProcessRanks> processes() const { return options_.processes.ranks; }

  // Whether losses and outputs arrive in this process; exactly one of several says so.
  bool has_last_stage() const;

  // Switches all stages, as dropout and batch norm want it.
  void train(bool on) const;

  // Another pipeline over the same stages that runs forwards alone. `options` are those of this
  // one, but for the number of microbatches.
  std::unique_ptr<PipelineSchedule> make_forward_schedule(int num_microbatches) const;

  const StepMeter& meter() const { return *meter_; }
  const TimelineRecorder& timeline() const { return *timeline_; }
  const ProfileRecorder& profile() const { return *profile_; }

 private:
  PipelinePlan plan_;
  RunPipelineOptions options_;
  std::shared_ptr<StepMeter> meter_ = std::make_shared<StepMeter>();
  std::shared_ptr<TimelineRecorder> timeline_ = std::make_shared<TimelineRecorder>();
  std::shared_ptr<ProfileRecorder> profile_ = std::make_shared<ProfileRecorder>();
  std::unique_ptr<PipelineSchedule> schedule_;
};

}  // namespace penstock
