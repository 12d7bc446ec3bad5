#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/run/data_parallel/replica_link.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/measure/timeline_recorder.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/train/pipeline_plan.h"
#include "penstock/run/train/step_meter.h"
#include "penstock/run/world/world.h"

namespace penstock {

// The processes that are the ranks of a run: a mesh, if there are several pipelines.
struct RunProcesses {
  World* world = nullptr;
  std::shared_ptr<ProcessRanks> ranks = nullptr;     // of the pipeline of this process
  std::shared_ptr<ProcessRanks> replicas = nullptr;  // with its stages; null: one pipeline
};

// Tells `value` to all processes of a run, and returns what each of them tells; without a world,
// `value` alone. Throws GroupError as soon as one is known to have failed. Once per topic.
std::vector<std::string> exchange_in_run(const RunProcesses& processes, const std::string& topic,
                                         const std::string& value);

// What the first process of a run decides, told to all of them.
std::string decide_for_all(const RunProcesses& processes, const std::string& topic,
                           const std::function<std::string()>& decide);

enum class RunPurpose { Training, Evaluation };

struct RunPipelineOptions {
  LossFunction loss = {};
  RunPurpose purpose = RunPurpose::Training;
  int num_microbatches = 1;  // of an evaluation
  RunProcesses processes = {};
  int num_replicas = 1;  // with ranks as threads; processes have as many as their mesh
  // Keeps of every stage the slices of its replica; but for those that share parameters with other
  // stages, which stay whole.
  bool is_sharded = false;
  // How long a rank may be without progress: large models take their time.
  std::chrono::nanoseconds deadline = std::chrono::minutes(5);
};

// The stages of a model that are in this process, and the pipelines that run them: with ranks as
// threads all stages, once per replica; with ranks as processes those of this process's rank, in
// one replica. Every rank computes with one thread, so that results do not depend on how many cores
// there are.
class RunPipeline {
 public:
  // Throws ArgumentError if it is to be sharded, and no stage can be.
  RunPipeline(const RunModel& model, PipelinePlan plan, const RunPipelineOptions& options);

  // Of this process, from 0. What is said without a number is said of the first.
  int num_local_replicas() const { return replicas_->num_replicas(); }
  PipelineSchedule& schedule(int replica = 0) { return replicas_->replica(replica); }
  const StageList& stages(int replica = 0) const { return replicas_->replica(replica).stages(); }
  // Which of all replicas of the run it is.
  ReplicaPosition position(int replica = 0) const;

  // Calls `work` for all replicas of this process at once, as PipelineReplicas::run(). All
  // processes call it, for what the replicas do together.
  void run(const std::function<void(int replica)>& work);

  const PipelinePlan& plan() const { return plan_; }
  int num_ranks() const { return plan_.schedule.num_ranks(); }
  int num_sharded_stages() const { return num_sharded_stages_; }  // of the model
  const RunProcesses& processes() const { return options_.processes; }
  World* world() const { return options_.processes.world; }

  // Whether losses and outputs of the run are told in this process; exactly one of several says so.
  bool has_last_stage() const;

  // What the ranks of this process have for sharded stages.
  std::vector<ParameterBytes> parameter_bytes() const;

  // Switches all stages, as dropout and batch norm want it.
  void train(bool on) const;

  // Other pipelines over the same stages that run forwards alone: one, or if stages are sharded one
  // for each replica of this process, which then all have to run the same. If there are several
  // replicas, this one cannot run() any more, since the stages belong to the new ones.
  std::unique_ptr<PipelineReplicas> make_forward_pipelines(int num_microbatches);

  const StepMeter& meter() const { return *meter_; }
  const TimelineRecorder& timeline() const { return *timeline_; }
  const ProfileRecorder& profile() const { return *profile_; }

 private:
  PipelinePlan plan_;
  RunPipelineOptions options_;
  std::shared_ptr<StepMeter> meter_ = std::make_shared<StepMeter>();
  std::shared_ptr<TimelineRecorder> timeline_ = std::make_shared<TimelineRecorder>();
  std::shared_ptr<ProfileRecorder> profile_ = std::make_shared<ProfileRecorder>();
  int num_sharded_stages_ = 0;
  bool has_handed_over_ = false;
  std::unique_ptr<PipelineReplicas> replicas_;
};

}  // namespace penstock
